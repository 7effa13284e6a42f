"""Inference for the Qwen3.6 model family, by libqwen36.

    with Model.load("model-directory") as model, model.session() as session:
        session.append(model.tokenizer.encode("Once upon"))
        for piece in session.generate(max_tokens=100):
            print(piece, end="", flush=True)
"""

from ._native import Library
from .chat import ChatOptions, ChatTemplate
from .errors import (
    Busy,
    CacheFull,
    Cancelled,
    ContextFull,
    FileNotFound,
    Forked,
    InvalidArgument,
    InvalidMessages,
    InvalidModel,
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
from .tokenizer import Decoder, Tokenizer

__all__ = [
    "Busy", "CPU", "CacheFull", "Cancelled", "ChatOptions", "ChatTemplate", "ContextFull", "Decoder",
    "FileNotFound", "Finish", "Forked", "GenerateResult", "InvalidArgument", "InvalidMessages", "InvalidModel",
    "InvalidToken", "KV", "Library", "LogLevel", "Logits", "Logprobs", "MemoryEstimate", "Model", "ModelInfo",
    "ModelOptions", "NoCandidate", "NoLogits", "NoTokenizer", "Numerics", "OutOfMemory", "Qwen36Error", "Sampling",
    "SamplingOptions", "Session", "SessionsFull", "Stats", "Status", "Tokenizer", "UnknownChatTemplate", "Weights",
    "memory_estimate", "sample", "step",
]
