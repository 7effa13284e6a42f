"""Chat templates against jinja2: the same bytes, or the same error, for the same request.

The templates are the published ones among the assets; that of the small Qwen3.5 models follows from the other one's
last lines. Requests are those of the assets and a matrix made here with a fixed seed ($SEED), $CHAT_CASES requests per
template; each is a JSON text, written in many ways, that jinja2 gets through json.loads. Tokens are compared with the
tokenizer's own of the rendered text, and where messages hold special text, with pieces encoded one by one.
"""

import collections
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import cffi
from jinja2.exceptions import TemplateError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gates"))
from gate import BUILD, ROOT, check, finish, make, skip  # noqa: E402

ASSETS = pathlib.Path(os.environ.get("QWEN36_ASSETS", ROOT.parent / "shared/assets"))
TOKENIZERS = [ROOT / "examples/demo-model",
              pathlib.Path(os.environ.get("QWEN36_TOKENIZER_DIR", ROOT / "build/assets/tokenizer"))]
CASES = int(os.environ.get("CHAT_CASES", "1500"))
SMALL_SHA256 = "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80"
pick = random.Random(int(os.environ.get("SEED", "36")))

make("shared", "cdef", "examples")
ffi = cffi.FFI()
ffi.cdef((BUILD / "qwen36.cdef.h").read_text())
library = ffi.dlopen(str(BUILD / "libqwen36.so"))


# ---- the two sides ----------------------------------------------------------------------------------------------

class Theirs:
    """A template as transformers compiles it."""

    def __init__(self, text):
        def refuse(message):
            raise TemplateError(message)

        def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
            return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                              sort_keys=sort_keys)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = tojson
        environment.globals["raise_exception"] = refuse
        self.template = environment.from_string(text)

    def render(self, request):
        """(text, None) or (None, error)."""
        try:
            return self.template.render(**request), None
        except Exception as error:  # what jinja lets through from Python counts too
            return None, error


class Ours:
    """The library's renderer of a template's text."""

    def __init__(self, text):
        data, out = text.encode(), ffi.new("qwen36_chat_template **")
        self.error = ffi.new("qwen36_error *")
        self.error.struct_size = ffi.sizeof("qwen36_error")
        self.buffer = ffi.new("char[]", 1 << 20)
        self.ids = ffi.new("int32_t[]", 1 << 20)
        self.size = ffi.new("size_t *")
        status = library.qwen36_chat_template_parse(data, len(data), ffi.NULL, out, self.error)
        check(status == 0, f"parse: {status} {ffi.string(self.error.message)}")
        self.chat = ffi.gc(out[0], library.qwen36_chat_template_destroy)
        self.name = ffi.string(library.qwen36_chat_template_name(self.chat)).decode()

    def options(self, request, **more):
        """The options of a request, and what they point to. An option is set where jinja finds it defined."""
        options = ffi.new("qwen36_chat_options *")
        library.qwen36_chat_options_init(options, ffi.sizeof("qwen36_chat_options"))
        options.add_generation_prompt = bool(request.get("add_generation_prompt"))
        options.add_vision_id = bool(request.get("add_vision_id"))
        for name in ("enable_thinking", "preserve_thinking"):
            if name in request:
                setattr(options, name, request[name])
        for name, value in more.items():
            setattr(options, name, value)
        tools = request["tools"].encode() if "tools" in request else b""
        effort = request.get("reasoning_effort")
        keep = [ffi.from_buffer(tools), ffi.new("char[]", effort.encode()) if effort is not None else ffi.NULL]
        options.tools, options.tools_length, options.reasoning_effort = keep[0], len(tools), keep[1]
        return options, keep

    def render(self, request, **more):
        """(bytes, None) or (None, (status, message)). Messages and tools are JSON texts."""
        options, keep = self.options(request, **more)
        messages = request["messages"].encode()
        status = library.qwen36_chat_render(self.chat, messages, len(messages), options, self.buffer,
                                            len(self.buffer), self.size, self.error)
        del keep
        if status == 0:
            return ffi.buffer(self.buffer, self.size[0])[:], None
        return None, (status, ffi.string(self.error.message).decode(errors="replace"))

    def encode(self, tokenizer, request, **more):
        options, keep = self.options(request, **more)
        messages = request["messages"].encode()
        status = library.qwen36_chat_encode(self.chat, tokenizer, messages, len(messages), options, self.ids,
                                            len(self.ids), self.size, self.error)
        del keep
        check(status == 0, f"encode: {status} {ffi.string(self.error.message)}")
        return list(self.ids[0:self.size[0]])

    def encode_text(self, tokenizer, text, flags):
        data = text.encode()
        library.qwen36_tokenizer_encode(tokenizer, data, len(data), flags, self.ids, len(self.ids), self.size,
                                        self.error)
        return list(self.ids[0:self.size[0]])


def parse_arguments(value):
    """The request with the arguments that are given as a JSON text parsed."""
    for message in value if isinstance(value, list) else []:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else []:
            call = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(call, dict) and isinstance(call.get("arguments"), str) and call["arguments"]:
                try:
                    call["arguments"] = json.loads(call["arguments"])
                except ValueError:
                    pass
    return value


def compare(ours, theirs, request, name):
    wanted = {**request, "messages": parse_arguments(json.loads(request["messages"]))}
    if "tools" in request:
        wanted["tools"] = json.loads(request["tools"])
    text, error = theirs.render(wanted)
    got, refusal = ours.render(request)
    shown = f"{name} {ours.name} {json.dumps(request, ensure_ascii=False)[:1500]}"
    if error is None:
        check(got is not None, f"{shown}\n  refused: {refusal}")
        if got is not None:
            check(got == text.encode(), f"{shown}\n  gives {got!r}\n  not {text.encode()!r}")
        return text
    check(refusal is not None and refusal[0] == library.QWEN36_ERROR_CHAT_MESSAGES,
          f"{shown}\n  should fail: {error!r}")
    own = isinstance(error, TemplateError) and not isinstance(error, UndefinedError)
    known = own or isinstance(error, UndefinedError) or "item pairs" in str(error) or "concatenate" in str(error)
    if refusal is not None and known and "arguments of a tool call" not in refusal[1]:
        check(refusal[1] == str(error)[:503], f"{shown}\n  says {refusal[1]!r}, not {str(error)!r}")
    kinds["template's error" if own else "jinja's or Python's error"] += 1
    return None


kinds = collections.Counter()


# ---- a matrix of requests ----------------------------------------------------------------------------------------

class Raw(str):
    """A number as it is to be written."""


SPACES = ["", " ", "\n", "\t", "  \n ", "\u3000", "\u00a0", "\u2028", "\x1c", "\x85", "\u200b", "\ufeff", "\u180e", "\r\n"]
WORDS = ["", "a", "Hello", "你好", "é", "e\u0301", "\U0001f600", "</think>", "<think>", "<think>\nx\n</think>\n\n", "\n", "\n\n",
         "<tool_response>", "</tool_response>", "<|im_end|>", "<|im_start|>", "{\"a\": 1}", "'", "\"", "\\", "\x00", "\x07",
         "\x7f", "\u2028", "</parameter>", "%s {{ x }} {% if %}", "image", "text", "\u0338", "\u0301", "\u00ad", "\U000e0001",
         "\ue000", "\u0378", "line\nline", "1"]
NUMBERS = ["0", "-0", "1", "-1", "42", "1.0", "-0.0", "0.1", "1e5", "1E5", "1e-6", "1e16", "1e15", "123456789012345678901234567890",
           "9007199254740993", "9007199254740993.0", "0.30000000000000004", "1.7976931348623157e308", "1e400", "-1e400",
           "5e-324", "2.4703282292062327e-324", "1e-400", "0.0001", "0.00001", "100000.0", "1e22", "123456789.123456789",
           "5.684341886080802e-14", "1" * 100, "-" + "9" * 70, "3.14159265358979323846264338327950288419716939937510"]
KEYS = ["a", "b", "city", "类型", "a b", "", "x\ny", "'", "\"", "name", "type", "\u00e9"]


def words():
    return "".join(pick.choice(WORDS) for _ in range(pick.randint(0, 4)))


def text():
    kind = pick.randint(0, 9)
    if kind < 3:
        return pick.choice(["Hi", "What is 1+1?", "OK.", "你好，世界", "x"])
    return pick.choice(SPACES) + words() + pick.choice(SPACES)


def number():
    if pick.random() < 0.6:
        return Raw(pick.choice(NUMBERS))
    return Raw(f"{pick.choice(['', '-'])}{pick.randint(0, 10 ** pick.randint(1, 25))}.{pick.randint(0, 10 ** pick.randint(1, 25))}"
               f"e{pick.randint(-330, 310)}")


def value(depth=3):
    kind = pick.randint(0, 7 if depth else 4)
    if kind < 2:
        return text()
    if kind == 2:
        return number()
    if kind < 5:
        return pick.choice([None, True, False])
    if kind == 5:
        return [value(depth - 1) for _ in range(pick.randint(0, 3))]
    return mapping(depth - 1)


def mapping(depth=2):
    count = pick.choice([0, 1, 2, 3, 3, 20]) if depth else pick.randint(0, 2)
    return {pick.choice(KEYS) if count < 20 else str(pick.randint(0, 30)): value(depth) for _ in range(count)}


def item(odd):
    kind = pick.randint(0, 9 if odd else 5)
    if kind < 3:
        return {"type": "text", "text": text()}
    if kind == 3:
        return pick.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "x"}}, {"image": "x"},
                            {"image_url": None}])
    if kind == 4:
        return pick.choice([{"type": "video"}, {"video": "x"}])
    if kind == 5:
        return {"text": text()}
    if kind == 6:
        return {"type": "text", "text": value()}
    return pick.choice([{"type": "audio"}, {}, "text", "an image", "video", "other", ["text"], ["image"], [], None, number(), True,
                        {"type": None, "text": None}, {"text": [text(), number(), None, {"k": "it's"}]}])


def content(odd):
    kind = pick.randint(0, 9)
    if kind < 5:
        return text()
    if kind < 8:
        return [item(odd) for _ in range(pick.randint(0, 4))]
    if kind == 8:
        return pick.choice([None, "", "<tool_response>" + text() + "</tool_response>",
                            "<think>" + text() + "</think>" + text(), text() + "</think>" + text() + "</think>" + text()])
    return pick.choice([number(), True, {}, {"a": 1}]) if odd and pick.random() < 0.5 else text()


def call(odd):
    arguments = mapping()
    if pick.random() < 0.3:
        arguments = dump(arguments)
    function = {"name": pick.choice(["f", "get_weather", "名", "a>b"]), "arguments": arguments}
    if odd:
        kind = pick.randint(0, 9)
        if kind == 0:
            function["arguments"] = pick.choice([None, number(), [], "", "[1]", "{", True, "null"])
        elif kind == 1:
            function["name"] = pick.choice([None, number(), True, [], {}])
        elif kind == 2:
            del function["name"]
        elif kind == 3:
            return pick.choice([None, "f", number(), [], {"function": None}, {"function": "f"}, {}])
    if pick.random() < 0.2:
        del function["arguments"]
    return function if pick.random() < 0.2 else {"id": "1", "type": "function", "function": function}


def message(role, odd):
    result = {"role": role}
    if not odd or pick.random() < 0.95:
        result["content"] = content(odd)
    if role == "assistant":
        if pick.random() < 0.4:
            result["reasoning_content"] = text() if not odd or pick.random() < 0.8 else value()
        if pick.random() < 0.5:
            result["tool_calls"] = [call(odd) for _ in range(pick.randint(0, 3))]
            if odd and pick.random() < 0.2:
                result["tool_calls"] = pick.choice([None, {}, {"a": 1}, "", "ab", number(), True])
    return result


def conversation(odd):
    messages = [message("system", odd)] if pick.random() < 0.4 else []
    for _ in range(pick.randint(1, 3)):
        messages.append(message("user", odd))
        for _ in range(pick.randint(0, 2)):
            messages.append(message("assistant", odd))
            messages += [message("tool", odd) for _ in range(pick.choice([0, 0, 1, 2, 3]))]
    if odd:
        kind = pick.randint(0, 14)
        where = pick.randint(0, len(messages))
        if kind == 0:
            messages.insert(where, message(pick.choice(["system", "developer", "function", "User", ""]), odd))
        elif kind == 1:
            messages.insert(where, pick.choice([{}, None, "user", [], number(), True, {"role": None}, {"content": "x"}]))
        elif kind == 2:
            messages = [m for m in messages if m["role"] != "user"]
        elif kind == 3:
            messages = []
        elif kind == 4:
            pick.shuffle(messages)
        elif kind == 5:
            messages.insert(where, message("tool", odd))
    return messages


def tools(odd):
    if odd and pick.random() < 0.15:
        return pick.choice([None, [], {}, {"a": 1}, "ab\u00e9\n", "", number(), True, [None, number(), "x"]])
    return [{"type": "function", "function": {"name": "f", "description": text(), "parameters": mapping()}}
            for _ in range(pick.randint(0, 3))]


def dump_string(string):
    """A JSON string in one of the ways to write it."""
    return json.dumps(string, ensure_ascii=pick.random() < 0.3).replace("/", pick.choice(["/", "/", "\\/"]))


def dump(data):
    """A JSON text with white space here and there, keys that stand twice, and numbers as they are."""
    def space():
        return pick.choice(["", "", "", " ", "\n", "\t", " \r\n"])

    if isinstance(data, Raw):
        return str(data)
    if isinstance(data, str):
        return dump_string(data)
    if isinstance(data, list):
        return "[" + space() + ("," + space()).join(dump(child) + space() for child in data) + "]"
    if isinstance(data, dict):
        members = list(data.items())
        if members and pick.random() < 0.03:
            members.insert(pick.randint(0, len(members)), (pick.choice(members)[0], pick.choice([None, text()])))
        return "{" + space() + ("," + space()).join(
            dump_string(key) + space() + ":" + space() + dump(child) + space() for key, child in members) + "}"
    return json.dumps(data)


def request(odd):
    result = {"messages": dump(conversation(odd))}
    if pick.random() < 0.4:
        result["tools"] = dump(tools(odd))
    for name in ("add_generation_prompt", "enable_thinking", "preserve_thinking", "add_vision_id"):
        if pick.random() < 0.5:
            result[name] = pick.random() < 0.6
    if pick.random() < 0.3:
        result["reasoning_effort"] = pick.choice(["xhigh", "medium", "low", "high" if odd else "low"])
    return result


# ---- tokens --------------------------------------------------------------------------------------------------------

SPECIAL = re.compile(r"(<\|\w+\|>|</?(?:think|tool_call|tool_response)>)")
HIDDEN = re.compile(r"<\|(im_end|im_start|image_pad)\|>")


def check_tokens(ours, theirs, tokenizer, asked):
    """Where content has no special text: as the whole text. Else: its special text hidden from the template's."""
    got, _ = ours.render(asked)
    if got is None:
        return
    whole = ours.encode_text(tokenizer, got.decode(), library.QWEN36_ENCODE_PARSE_SPECIAL)
    check(ours.encode(tokenizer, asked, parse_special_in_content=1) == whole, f"parse_special: {asked}")
    hidden = {name: HIDDEN.sub("\ue010\\1\ue011", part) if isinstance(part, str) else part
              for name, part in asked.items()}
    written = (hidden["messages"] + hidden.get("tools", "")).replace("\\", "")
    shown = ours.render(hidden)[0].decode()
    if re.search("</?think|tool_response>", written) or "\\ue01" in shown:
        return  # these have a meaning to the template; repr() shows what was hidden
    wanted = []
    for part in SPECIAL.split(shown):
        flags = library.QWEN36_ENCODE_PARSE_SPECIAL if SPECIAL.fullmatch(part) else 0
        wanted += ours.encode_text(tokenizer, part.replace("\ue010", "<|").replace("\ue011", "|>"), flags)
    check(ours.encode(tokenizer, asked) == wanted, f"tokens of {asked}")
    kinds["tokens"] += 1
    if hidden == asked:
        check(wanted == whole, f"tokens of plain {asked}")
        kinds["plain tokens"] += 1


def load_tokenizer(directory):
    out = ffi.new("qwen36_tokenizer **")
    status = library.qwen36_tokenizer_load(str(directory).encode(), ffi.NULL, out, ffi.NULL)
    return ffi.gc(out[0], library.qwen36_tokenizer_destroy) if status == 0 else None


# ---- the example program ---------------------------------------------------------------------------------------------

def check_program(path, asked, wanted):
    result = subprocess.run([BUILD / "examples/render", "--template", path], input=json.dumps(asked).encode(),
                            capture_output=True)
    if "text" in wanted:
        check(result.returncode == 0 and result.stdout == wanted["text"].encode(), f"render {path.parent.name} {asked}")
    else:
        message = wanted["error"].split(": ", 1)[1]
        check(result.returncode == 1 and message in result.stderr.decode() and not result.stdout,
              f"render {path.parent.name} {asked}: {result.stderr}")


def check_cases(paths):
    """The assets' requests through the example. Arguments as text are parsed here, which jinja does not do."""
    cases = json.loads((ASSETS / "chat_template_cases/cases.json").read_text())["cases"]
    for case in cases:
        for name, wanted in case["expect"].items():
            if name not in paths:
                continue
            if case["name"] == "args_as_json_string":
                parsed = parse_arguments(json.loads(json.dumps(case["request"]["messages"])))
                wanted = {"text": Theirs(paths[name].read_text()).render({**case["request"], "messages": parsed})[0]}
            elif "text" in wanted:
                check(hashlib.sha256(wanted["text"].encode()).hexdigest() == wanted["sha256"], case["name"])
            check_program(paths[name], case["request"], wanted)


def small_template(text):
    """That of the small Qwen3.5 models: thinking only if asked for."""
    thought, empty = "{{- '<think>\\n' }}", "{{- '<think>\\n\\n</think>\\n\\n' }}"
    head, tail = text.split("enable_thinking is defined and enable_thinking is false")
    tail = tail.replace(thought, "@").replace(empty, thought).replace("@", empty)
    return head + "enable_thinking is defined and enable_thinking is true" + tail


def main():
    paths = {path.parent.name: path for path in sorted(ASSETS.glob("configs/*/chat_template.jinja"))}
    if "Qwen3.5" not in paths or "Qwen3.6" not in paths:
        skip("the published templates are not among the assets")
        return
    templates = {name: path.read_text() for name, path in paths.items()}
    templates["Qwen3.5-small"] = small_template(templates["Qwen3.5"])
    digest = hashlib.sha256(templates["Qwen3.5-small"].encode()).hexdigest()
    check(digest == SMALL_SHA256, f"the small template's digest is {digest}")
    check_cases(paths)
    tokenizers = [tokenizer for tokenizer in map(load_tokenizer, TOKENIZERS) if tokenizer is not None]
    for name, source in templates.items():
        ours, theirs = Ours(source), Theirs(source)
        check(ours.name == name.lower(), f"{name} is taken for {ours.name}")
        for index in range(CASES):
            asked = request(odd=index % 3 == 2)
            if compare(ours, theirs, asked, str(index)) is not None:
                kinds["texts"] += 1
            check_tokens(ours, theirs, tokenizers[index % len(tokenizers)], asked)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    with tempfile.TemporaryDirectory() as folder:
        unknown = pathlib.Path(folder) / "unknown.jinja"
        unknown.write_text(templates["Qwen3.6"] + " ")
        result = subprocess.run([BUILD / "examples/render", "--template", unknown], input=b'{"messages": []}',
                                capture_output=True)
        check(result.returncode == 1 and b"none of the known" in result.stderr, f"an unknown template: {result}")


main()
finish()
