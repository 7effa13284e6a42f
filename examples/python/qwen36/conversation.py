"""A conversation: messages, a session that follows them, answers as they come."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .answer import OPEN_THINK, Part, Piece, Splitter, openai_call
from .errors import Status
from .model import Model
from .session import Finish, Session
from .template import ChatOptions, ChatTemplate
from .tokenizer import Tokenizer

Message = dict[str, Any]


class Answer(Iterator[str]):
    """An answer as it comes: an iterator over its content. `pieces` iterates over its reasoning too, and `read` is
    the whole content. The model computes while the caller asks for more.

    When the answer ends it is the last of the chat's messages. It may be ended early, by `close`, by the chat's next
    question, by Ctrl-C or an error: then what came of it is kept. If no token came at all, the chat's messages are
    those from before the question."""

    def __init__(self, chat: Chat, question: Message | None, tokens: list[int], max_tokens: int,
                 stops: Sequence[str]) -> None:
        self._chat: Chat | None = chat  # until the answer has ended
        self._question = question
        self.reused = chat.session.sync(tokens)
        """Leading tokens of the prompt that earlier turns had computed."""
        self.prompt_tokens = len(tokens)
        """Tokens of the prompt, these included."""
        self.output_tokens = 0
        """Tokens sampled so far, the end token included."""
        self.finish: Finish | None = None
        """Why it ended; None while it runs, and when it was ended early."""
        self.tool_calls: list[dict[str, Any]] = []
        """The calls that the model asks for, in OpenAI's form; complete when the answer has ended."""
        tail = chat.tokenizer.decode(tokens[-8:])
        self._splitter = Splitter(tail.rstrip().endswith(OPEN_THINK), bool(chat.tools))
        self._running = self._run(chat.session, max_tokens, stops)

    @property
    def content(self) -> str:
        """The content so far."""
        return self._splitter.content

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return self._splitter.reasoning

    def __next__(self) -> str:
        return next(piece.text for piece in self._running if piece.part is Part.CONTENT)

    def pieces(self) -> Iterator[Piece]:
        """Reasoning and content, in the order in which they come."""
        return self._running

    def read(self) -> str:
        """Computes what is left of the answer; the whole content."""
        for _ in self._running:
            pass
        return self.content

    def close(self) -> None:
        """Ends the answer here."""
        self._running.close()
        self._end()

    def _run(self, session: Session, max_tokens: int, stops: Sequence[str]) -> Generator[Piece, None, None]:
        try:
            for text in session.generate(max_tokens, stops=stops):
                self.output_tokens = session.length - self.prompt_tokens
                yield from self._splitter.push(text)
            self.finish = session.finish
            yield from self._splitter.finish()
        finally:
            self._end()

    def _end(self) -> None:
        """Once: the messages of the chat become what they are after this answer."""
        chat, self._chat = self._chat, None
        if chat is None:
            return
        self.output_tokens = chat.session.length - self.prompt_tokens
        self._splitter.finish()
        if self.output_tokens > 0:
            self.tool_calls = [openai_call(call, chat._new_identity(), chat.tools) for call in self._splitter.calls]
            chat.messages.append(self._message())
        elif self._question is not None and chat.messages and chat.messages[-1] is self._question:
            chat.messages.pop()

    def _message(self) -> Message:
        # An empty reasoning is given too: without it some templates look for one in the content.
        message: Message = {"role": "assistant", "content": self.content, "reasoning_content": self.reasoning}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


class Chat:
    """A conversation with a model.

        with Model.load("model-directory") as model, Chat(model, system="Be brief.") as chat:
            for text in chat.ask("Who are you?"):
                print(text, end="", flush=True)

    `messages` is a list of dicts in OpenAI's form that may be read, saved and changed between two answers: each answer
    makes the session follow it. Where what the session has computed stands unchanged at the beginning of the next
    prompt, only the rest is computed. Most templates leave the reasoning of older answers out, which changes it;
    preserve_thinking=True keeps the reasoning, where the template can do that.

    template: by default that of the model's directory. tools: a list in OpenAI's form. thinking: whether answers begin
    with reasoning, by default as the template says. max_tokens: of an answer, its reasoning included. All of them may
    be changed between two answers. Sampling is that of `session`. Serves one thread at a time."""

    def __init__(self, model: Model, template: ChatTemplate | None = None, *, system: str | None = None,
                 tools: Sequence[Mapping[str, Any]] = (), thinking: bool | None = None,
                 preserve_thinking: bool | None = None, reasoning_effort: str | None = None,
                 allow_nearest: bool = False, max_tokens: int = 1024, context_length: int | None = None) -> None:
        if model.tokenizer is None:
            raise model.library.exception(Status.NO_TOKENIZER)
        self.template = template or ChatTemplate.load(model.directory, library=model.library)
        self.tokenizer: Tokenizer = model.tokenizer
        self.system, self.tools, self.max_tokens = system, tools, max_tokens
        self.thinking, self.preserve_thinking = thinking, preserve_thinking
        self.reasoning_effort, self.allow_nearest = reasoning_effort, allow_nearest
        self.session: Session = model.session(context_length=context_length)
        self.last: Answer | None = None
        """The last answer."""
        self._identities = 0
        self.messages: list[Message] = []
        self.clear()

    def clear(self) -> None:
        """Forgets the conversation; the system message stays."""
        self._end_last()
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        self.last = None

    def ask(self, content: str | list[dict[str, Any]], *, max_tokens: int | None = None,
            stops: Sequence[str] = ()) -> Answer:
        """Adds a message of the user; its answer, see `Answer`. When this fails, `messages` is as before: a
        conversation that has become too long for the session is ContextFull."""
        self._end_last()
        question = {"role": "user", "content": content}
        self.messages.append(question)
        try:
            return self._begin(question, max_tokens, stops)
        except BaseException:
            self.messages.pop()
            raise

    def answer(self, *, max_tokens: int | None = None, stops: Sequence[str] = ()) -> Answer:
        """The answer to the messages as they are, such as after `add_tool_result`."""
        self._end_last()
        return self._begin(None, max_tokens, stops)

    def add_tool_result(self, result: object, tool_call_id: str | None = None) -> None:
        """Adds what a tool gave: a text, or something else as JSON. Results stand in the order of the calls."""
        self._end_last()
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        message: Message = {"role": "tool", "content": text}
        if tool_call_id is not None:
            message["tool_call_id"] = tool_call_id
        self.messages.append(message)

    def prompt(self) -> list[int]:
        """The tokens that the next answer would follow."""
        return self.template.encode(self.tokenizer, self.messages, **self._options())

    def close(self) -> None:
        """Ends the last answer and the session. The messages stay."""
        self._end_last()
        self.session.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _begin(self, question: Message | None, max_tokens: int | None, stops: Sequence[str]) -> Answer:
        limit = self.max_tokens if max_tokens is None else max_tokens
        self.last = Answer(self, question, self.prompt(), limit, stops)
        return self.last

    def _end_last(self) -> None:
        if self.last is not None:
            self.last.close()

    def _new_identity(self) -> str:
        self._identities += 1
        return f"call_{self._identities}"

    def _options(self) -> ChatOptions:
        options: ChatOptions = {"allow_nearest": self.allow_nearest}
        if self.tools:
            options["tools"] = self.tools
        if self.thinking is not None:
            options["enable_thinking"] = self.thinking
        if self.preserve_thinking is not None:
            options["preserve_thinking"] = self.preserve_thinking
        if self.reasoning_effort is not None:
            options["reasoning_effort"] = self.reasoning_effort
        return options
