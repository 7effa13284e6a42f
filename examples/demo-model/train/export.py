"""Write the trained weights in BF16 under the published tensor names.

usage: export.py WORK_DIR MODEL_DIR
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from model import Config, Model


def main(work, target):
    model = Model(Config(target / "config.json"))
    model.load_state_dict(torch.load(work / "checkpoint.pt")["model"])
    tensors = {name: value.to(torch.bfloat16).contiguous()
               for name, value in model.published().items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)
    count = sum(t.numel() for t in tensors.values())
    print(f"{len(tensors)} tensors, {count:,} parameters")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
