"""The demo model in transformers' own classes, in float32.

transformers ignores the MTP tensors, so the MTP head is put together here out
of its decoder layer and norm classes.
"""

import json

import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import Qwen3_5MoeForCausalLM
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as published
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig


def text_config(directory):
    values = json.loads((directory / "config.json").read_text())["text_config"]
    return Qwen3_5MoeTextConfig(**values, attn_implementation="sdpa",
                                experts_implementation="eager")


def load_language_model(directory):
    """By transformers' own loader, from the published names."""
    model = Qwen3_5MoeForCausalLM.from_pretrained(
        directory, config=text_config(directory), dtype=torch.float32)
    return model.eval()


class DraftHead(torch.nn.Module):
    def __init__(self, directory):
        super().__init__()
        c = text_config(directory)
        attention = c.layer_types.index("full_attention")
        norm = lambda: published.Qwen3_5MoeRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.fc = torch.nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(), norm(), norm()
        self.layers = torch.nn.ModuleList([published.Qwen3_5MoeDecoderLayer(c, attention)])
        self.rotary = published.Qwen3_5MoeTextRotaryEmbedding(c)
        tensors = load_file(directory / "model.safetensors")
        self.load_state_dict({n.removeprefix("mtp."): t.float() for n, t in tensors.items()
                              if n.startswith("mtp.")})

    def forward(self, model, hidden, next_ids):
        """Logits [B,T,V] for the token after next_ids; hidden is post-final-norm."""
        embedded = self.pre_fc_norm_embedding(model.model.embed_tokens(next_ids))
        x = self.fc(torch.cat((embedded, self.pre_fc_norm_hidden(hidden)), -1))
        T = x.shape[1]
        positions = torch.arange(T)[None]
        mask = torch.full((T, T), torch.finfo(x.dtype).min).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=self.rotary(x, positions), attention_mask=mask)
        return F.linear(self.norm(x), model.lm_head.weight)
