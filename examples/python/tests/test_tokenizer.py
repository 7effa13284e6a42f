import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import Model, Tokenizer

TEXT = "Grüße, 世界! 🦊 It was <|im_end|> a dark night."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEMO_MODEL)


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.decode_bytes(ids) == TEXT.encode()
    assert b"".join(tokenizer.token_bytes(token) for token in ids) == TEXT.encode()
    assert tokenizer.encode(TEXT.encode()) == ids
    long = TEXT * 500
    assert tokenizer.decode(tokenizer.encode(long)) == long
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""


def test_special_tokens(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None and tokenizer.is_special(end) and not tokenizer.is_special(10)
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [end]
    assert len(tokenizer.encode("<|im_end|>")) > 1
    assert tokenizer.decode([end]) == "<|im_end|>"
    assert tokenizer.decode([end], skip_special=True) == ""


def test_single_tokens(tokenizer: Tokenizer, model: Model) -> None:
    assert len(tokenizer) == model.info.token_count
    assert tokenizer.token_id(tokenizer.token_bytes(300)) == 300
    assert tokenizer.token_id("no token has such bytes") is None
    with pytest.raises(KeyError):
        tokenizer.token_bytes(len(tokenizer))
    with pytest.raises(qwen36.InvalidToken):
        tokenizer.decode([-1])


def test_ids_are_checked(tokenizer: Tokenizer) -> None:
    with pytest.raises(TypeError):
        tokenizer.decode([1.5])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        tokenizer.decode([2**31])


def test_invalid_text_is_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(b"a\xffb")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("a\0b")) == "a\0b"
    assert "\ufffd" in tokenizer.decode(tokenizer.encode("\ud800"))


def test_streaming_decoder(tokenizer: Tokenizer) -> None:
    decoder = tokenizer.decoder()
    pieces = [decoder.push(token) for token in tokenizer.encode(TEXT)]
    assert "".join(pieces) + decoder.finish() == TEXT
    fox = tokenizer.encode("🦊")
    assert len(fox) > 1 and decoder.push(fox[0]) == ""
    assert decoder.finish() == "\ufffd" and decoder.finish() == ""


def test_decoder_and_special_tokens(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    assert tokenizer.decoder().push(end) == ""
    assert tokenizer.decoder(skip_special=False).push(end) == "<|im_end|>"
    with pytest.raises(qwen36.InvalidToken):
        tokenizer.decoder().push(10**6)


def test_stop_strings(tokenizer: Tokenizer) -> None:
    decoder = tokenizer.decoder(stops=["never", "dark night"])
    text = "".join(decoder.push(token) for token in tokenizer.encode("It was a dark nightmare."))
    assert text + decoder.finish() == "It was a " and decoder.stopped == 1
    assert tokenizer.decoder().stopped is None
    with pytest.raises(qwen36.InvalidArgument):
        tokenizer.decoder(stops=[""])
    with pytest.raises(TypeError):
        tokenizer.decoder(stops="dark")


def test_the_models_own(tokenizer: Tokenizer, model: Model) -> None:
    assert model.tokenizer is not None
    assert model.tokenizer.encode(TEXT) == tokenizer.encode(TEXT)


def test_no_such_directory() -> None:
    with pytest.raises(FileNotFoundError):
        Tokenizer.load("no/such/directory")
