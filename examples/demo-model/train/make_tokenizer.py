"""Train the byte-level BPE and write tokenizer.json and tokenizer_config.json.

usage: make_tokenizer.py WORK_DIR MODEL_DIR     (after texts.py WORK_DIR)
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from chat_text import turns

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
         r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# The family's added tokens in id order: the first 26 stand in tokenizer.json,
# the audio ones only in tokenizer_config.json.
SPECIAL = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> "
           "<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> "
           "<|vision_pad|> <|image_pad|> <|video_pad|>").split()
PLAIN = ("<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> "
         "<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>").split()
AUDIO = ("<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> "
         "<tts_text_bos_single> <|audio_pad|>").split()
TOTAL = 4096
CHAT_TURNS = 3000


def training_text(work):
    for _, text in json.loads((work / "train.json").read_text()):
        yield text
    for question, answer in turns(CHAT_TURNS, seed=1):
        yield question + "\n" + answer


def make(work):
    tokenizer = Tokenizer(models.BPE(dropout=None, unk_token=None, continuing_subword_prefix="",
                                     end_of_word_suffix="", fuse_unk=False, byte_fallback=False,
                                     ignore_merges=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated", False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    trainer = trainers.BpeTrainer(
        vocab_size=TOTAL - len(SPECIAL + PLAIN + AUDIO), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        continuing_subword_prefix="", end_of_word_suffix="")
    tokenizer.train_from_iterator(training_text(work), trainer)
    tokenizer.post_processor = processors.ByteLevel(
        trim_offsets=False, add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in PLAIN])
    return tokenizer


def tokenizer_config(tokenizer):
    def entry(token, special):
        return {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                "single_word": False, "special": special}
    first = tokenizer.token_to_id(SPECIAL[0])
    added = [entry(t, t not in PLAIN) for t in SPECIAL + PLAIN + AUDIO]
    return {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(first + i): e for i, e in enumerate(added)},
        "additional_special_tokens": SPECIAL[1:], "bos_token": None,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 4096, "pad_token": "<|endoftext|>", "pretokenize_regex": SPLIT,
        "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }


def main(work, model):
    model.mkdir(parents=True, exist_ok=True)
    tokenizer = make(work)
    data = json.loads(tokenizer.to_str())
    # The published files of the family have these two in an older spelling.
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    data["decoder"].update(add_prefix_space=False, trim_offsets=False, use_regex=False)
    (model / "tokenizer.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    text = json.dumps(tokenizer_config(tokenizer), indent=4, ensure_ascii=True)
    (model / "tokenizer_config.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
