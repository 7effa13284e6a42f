"""Inference for the Qwen3.6 model family, by libqwen36.

    with Model.load("model-directory") as model, model.session() as session:
        session.append(model.tokenizer.encode("Once upon"))
        for piece in session.generate(max_tokens=100):
            print(piece, end="", flush=True)
"""

from ._native import Library
from .answer import Part, Piece
from .conversation import Answer, Chat
from .errors import (
    Busy,
    CacheFull,
    Cancelled,
    ContextFull,
    DeviceFailed,
    FileNotFound,
    FileNotWritten,
    Forked,
    InvalidArgument,
    InvalidMessages,
    InvalidModel,
    InvalidSnapshot,
    InvalidToken,
    NoCandidate,
    NoLogits,
    NoTokenizer,
    OutOfMemory,
    Qwen36Error,
    SessionsFull,
    Status,
    UnknownChatTemplate,
)
from .model import (
    CPU,
    KV,
    DeviceTier,
    LogLevel,
    MemoryEstimate,
    Model,
    ModelInfo,
    ModelOptions,
    Numerics,
    Stats,
    Weights,
    memory_estimate,
)
from .session import (
    Finish,
    GenerateResult,
    Logits,
    Logprobs,
    Sampling,
    SamplingOptions,
    Session,
    sample,
    step,
)
from .template import ChatOptions, ChatTemplate
from .tokenizer import Decoder, Tokenizer

__all__ = [
    "Answer", "Busy", "CPU", "CacheFull", "Cancelled", "Chat", "ChatOptions", "ChatTemplate", "ContextFull",
    "Decoder", "DeviceFailed", "DeviceTier", "FileNotFound", "FileNotWritten", "Finish", "Forked", "GenerateResult",
    "InvalidArgument", "InvalidMessages", "InvalidModel", "InvalidSnapshot", "InvalidToken", "KV", "Library",
    "LogLevel", "Logits", "Logprobs", "MemoryEstimate", "Model", "ModelInfo", "ModelOptions", "NoCandidate",
    "NoLogits", "NoTokenizer", "Numerics", "OutOfMemory", "Part", "Piece", "Qwen36Error", "Sampling",
    "SamplingOptions", "Session", "SessionsFull", "Stats", "Status", "Tokenizer", "UnknownChatTemplate", "Weights",
    "memory_estimate", "sample", "step",
]
