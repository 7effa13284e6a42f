"""Public-domain training text out of Debian packages.

Each source names its package, the file inside it and a reader that turns the
file into clean paragraphs. Packages are fetched with `apt-get download` and
unpacked with `dpkg -x`; nothing is installed. README.md says why each text
is in the public domain.

`documents()` cuts every work into documents of a few thousand characters and
keeps one in HELD_OUT_EVERY of them for evaluation only.
"""

import gzip
import json
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

DOCUMENT_CHARS = 6000
HELD_OUT_EVERY = 64
# Old novels contain slurs of their time; a demo has no use for them.
UNWANTED = re.compile(r"nigg|negro|darkey|darkie|savages?\b|\binjun", re.I)


def unwrap(text):
    """Paragraphs of hard-wrapped text; indented (verse) lines stay lines."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.replace("\r", "")):
        lines = [line.rstrip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        indent = min(len(l) - len(l.lstrip()) for l in lines)
        verse = sum(l[indent:indent + 1] == " " for l in lines[1:]) > 0 or indent > 4
        if verse:
            paragraphs.append("\n".join(l.strip() for l in lines))
        else:
            paragraphs.append(re.sub(r" +", " ", " ".join(l.strip() for l in lines)))
    return paragraphs


def read_plain(path, root):
    text = path.read_bytes().decode("utf-8-sig", "replace")
    start = text.find("*** START OF")
    if start >= 0:
        text = text[text.index("\n", start):]
    end = text.find("*** END OF")
    text = text[:end] if end >= 0 else text
    return unwrap(text.split("End of Project")[0].replace("_", ""))


def read_austen(path, root):
    """R lazy-load file: (big-endian length, zlib stream) per novel; inside, an
    R character vector whose items are (flags 0x00040009, length, bytes)."""
    data, paragraphs = path.read_bytes(), []
    while data:
        stream = zlib.decompressobj()
        raw = stream.decompress(data[4:])
        data = stream.unused_data
        at = raw.index(b"\x00\x04\x00\x09")
        lines = []
        while raw[at:at + 4] == b"\x00\x04\x00\x09":
            size = struct.unpack(">I", raw[at + 4:at + 8])[0]
            lines.append(raw[at + 8:at + 8 + size].decode("utf-8"))
            at += 8 + size
        paragraphs += unwrap("\n".join(lines).replace("_", ""))
    return paragraphs


KJV_PARTS = ["Ge1:1-2Sa24:25", "Psa1:1-Ecc12:14", "Mat1:1-Act28:31"]


def read_kjv(path, root):
    """The text is packed; the package's own program prints it."""
    paragraphs = []
    for part in KJV_PARTS:
        out = subprocess.run([root / "usr/bin/bible", "-p", path.parent, part],
                             capture_output=True, text=True, check=True).stdout
        verses = []
        for line in out.split("\n"):
            start = re.match(r"\s*(?:[1-3]?[A-Z][a-z]+)?(\d+:)?(\d+) (.*)", line)
            if start:
                if start[1] or len(verses) >= 6:
                    paragraphs.append(" ".join(verses))
                    verses = []
                verses.append(start[3])
            elif line.strip() and verses and not line.startswith(" "):
                verses[-1] += " " + line.strip()
        paragraphs.append(" ".join(verses))
    return [re.sub(r"[{}\[\]]", "", p) for p in paragraphs if p]


def read_jargon(path, root):
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    body = text[text.index("\nGlossary\n"):]
    body = body[:body.rindex("Bibliography")]
    # Pictures and tables are drawn with lines and columns; skip those blocks.
    kept = [p for p in unwrap(re.sub(r"[{}]", "", body))
            if len(p) > 1 and not re.search(r"[│─═|]|-{4}|\s{3}", p)]
    return kept


def read_devil(path, root):
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    return unwrap(text[text.index("ABASEMENT, n."):].replace("_", ""))


def read_poems(path, root):
    text = re.sub(r"\x1b\[\d*m", "", path.read_text("utf-8"))
    poems = [re.sub(r"\n\s*\n", "\n", p.strip()) for p in text.split("\n%")]
    return [p for p in poems if p]


GO = "usr/share/gocode/src/github.com/"
SOURCES = [  # name, packages, file, reader
    ("austen", ["r-cran-janeaustenr"],
     "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb", read_austen),
    ("moby-dick", ["golang-github-colinmarc-hdfs-dev"],
     GO + "colinmarc/hdfs/testdata/mobydick.txt", read_plain),
    ("tom-sawyer", ["golang-github-pierrec-lz4-dev"],
     GO + "pierrec/lz4/testdata/Mark.Twain-Tom.Sawyer.txt", read_plain),
    ("opticks", ["golang-1.19-src"],
     "usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt", read_plain),
    ("devils-dictionary", ["dict-devil"], "usr/share/dictd/devil.dict.dz", read_devil),
    ("jargon-file", ["jargon-text"], "usr/share/doc/jargon-text/jargon.txt.gz", read_jargon),
    ("king-james-bible", ["bible-kjv-text", "bible-kjv"], "usr/lib/bible.data", read_kjv),
    ("tang-poems", ["fortunes-zh"], "usr/share/games/fortunes/tang300", read_poems),
]


def fetch(work):
    """Download and unpack the packages below `work`; returns the file root."""
    debs, root = work / "debs", work / "root"
    debs.mkdir(parents=True, exist_ok=True)
    for package in sorted({p for s in SOURCES for p in s[1]}):
        if not list(debs.glob(package + "_*.deb")):
            subprocess.run(["apt-get", "download", package], cwd=debs, check=True)
        subprocess.run(["dpkg", "-x", next(debs.glob(package + "_*.deb")), root], check=True)
    return root


def cut(name, paragraphs):
    """Documents of about DOCUMENT_CHARS, cut between paragraphs."""
    documents, current, size = [], [], 0
    for paragraph in paragraphs:
        current.append(paragraph)
        size += len(paragraph)
        if size >= DOCUMENT_CHARS:
            documents.append((name, "\n\n".join(current)))
            current, size = [], 0
    return documents + ([(name, "\n\n".join(current))] if current else [])


def documents(work):
    """(training, held-out) lists of (source name, text)."""
    root, train, held = fetch(work), [], []
    for name, _, file, reader in SOURCES:
        paragraphs = [p for p in reader(root / file, root) if not UNWANTED.search(p)]
        for i, document in enumerate(cut(name, paragraphs)):
            (held if i % HELD_OUT_EVERY == 9 else train).append(document)
    return train, held


if __name__ == "__main__":
    work = Path(sys.argv[1])
    train, held = documents(work)
    for name, docs in (("train", train), ("held", held)):
        (work / f"{name}.json").write_text(json.dumps(docs, ensure_ascii=False))
    for name in dict(train):
        size = lambda docs: sum(len(t.encode()) for n, t in docs if n == name)
        print(f"{name:20} train {size(train):9,} bytes, held out {size(held):7,}")
