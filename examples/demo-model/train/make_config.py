"""Write config.json and generation_config.json next to a trained tokenizer.

usage: make_config.py MODEL_DIR
"""

import json
import sys
from pathlib import Path

LAYERS = 8
INTERVAL = 4
ROWS_MULTIPLE = 64


def main(model):
    added = json.loads((model / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    ids = {e["content"]: int(i) for i, e in added.items()}
    end_of_text, end_of_turn = ids["<|endoftext|>"], ids["<|im_end|>"]
    # Always at least one block of padding rows, as the published models have.
    rows = (max(ids.values()) // ROWS_MULTIPLE + 2) * ROWS_MULTIPLE
    text = {
        "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
        "bos_token_id": end_of_text, "dtype": "bfloat16", "eos_token_id": end_of_text,
        "full_attention_interval": INTERVAL, "head_dim": 32, "hidden_act": "silu",
        "hidden_size": 192, "initializer_range": 0.02,
        "layer_types": ["full_attention" if (i + 1) % INTERVAL == 0 else "linear_attention"
                        for i in range(LAYERS)],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_num_key_heads": 3,
        "linear_num_value_heads": 6, "linear_value_head_dim": 32, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 4096, "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 32, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "num_attention_heads": 6, "num_experts": 8,
        "num_experts_per_tok": 2, "num_hidden_layers": LAYERS, "num_key_value_heads": 2,
        "output_router_logits": False, "pad_token_id": None, "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [2, 1, 1],
                            "partial_rotary_factor": 0.25, "rope_theta": 10000,
                            "rope_type": "default"},
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 64,
        "tie_word_embeddings": True, "use_cache": True, "vocab_size": rows,
    }
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "image_token_id": ids["<|image_pad|>"], "language_model_only": True,
        "model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": True,
        "video_token_id": ids["<|video_pad|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
    }
    generation = {
        "bos_token_id": end_of_text, "do_sample": True,
        "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text,
        "temperature": 0.8, "top_k": 20, "top_p": 0.95,
    }
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        (model / name).write_text(json.dumps(value, indent=4) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
