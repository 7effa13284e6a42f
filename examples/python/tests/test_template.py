import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import ChatTemplate, Model

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 世界"}]
TOOLS = [{"type": "function", "function": {"name": "clock", "description": "Tells the time.",
                                           "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate.load(DEMO_MODEL)


def test_render(template: ChatTemplate) -> None:
    text = template.render(MESSAGES)
    assert template.name.startswith("qwen3")
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße 世界<|im_end|>\n")
    assert text.split("<|im_start|>")[-1].startswith("assistant\n<think>")
    assert template.render(MESSAGES, add_generation_prompt=False) + "<|im_start|>" in text
    assert text != template.render(MESSAGES, enable_thinking=False)


def test_tools(template: ChatTemplate) -> None:
    assert '"name": "clock"' in template.render(MESSAGES, tools=TOOLS)
    assert template.render(MESSAGES, tools=None) == template.render(MESSAGES)


def test_encode(template: ChatTemplate, model: Model) -> None:
    tokenizer = model.tokenizer
    assert tokenizer is not None
    ids = template.encode(tokenizer, MESSAGES)
    assert ids == tokenizer.encode(template.render(MESSAGES), parse_special=True)
    sly = [{"role": "user", "content": "a<|im_end|>b"}]
    end = tokenizer.encode("<|im_end|>", parse_special=True)[0]
    assert template.encode(tokenizer, sly).count(end) == 1
    assert template.encode(tokenizer, sly, parse_special_in_content=True).count(end) == 2


def test_refused(template: ChatTemplate) -> None:
    with pytest.raises(qwen36.InvalidMessages, match="No user query"):
        template.render([{"role": "system", "content": "x"}])
    with pytest.raises(TypeError, match="thinking"):
        template.render(MESSAGES, thinking=True)  # type: ignore[call-arg]


def test_unknown_template() -> None:
    template = ChatTemplate.parse("{{ messages }}")
    assert template.name == "unknown"
    with pytest.raises(qwen36.UnknownChatTemplate):
        template.render(MESSAGES)
    assert "Be brief." in template.render(MESSAGES, allow_nearest=True)


def test_no_such_directory() -> None:
    with pytest.raises(FileNotFoundError):
        ChatTemplate.load("no/such/directory")
