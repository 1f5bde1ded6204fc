"""Tokenizers of the `tokenizers` package beside the files from which ours are read: published ones, or trained here."""

import dataclasses
import json
import pathlib
import shutil
import struct

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, normalized=False, special=True)]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclasses.dataclass
class Reference:
    name: str
    path: pathlib.Path  # of what our side loads
    tokenizer: Tokenizer
    rule: str  # of unicode_classes.py: which code points may differ
    wraps: bool = False  # the folder says which special tokens a model wants, and `tokenizer` has them
    decoder: Tokenizer = None  # for ids to texts, where it is another one

    def __post_init__(self):
        self.decoder = self.decoder or self.tokenizer


def byte_level(vocabulary, merges):
    tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    known = tokenizer.get_vocab()
    special = ROBERTA if "<s>" in known else ["<|endoftext|>"]
    tokenizer.add_special_tokens([each for each in special if getattr(each, "content", each) in known])
    if "<s>" in known and "</s>" in known:
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", known["</s>"]), ("<s>", known["<s>"]),
                                                               trim_offsets=False)
    return tokenizer


def word_piece(vocabulary, lowercase=True):
    tokenizer = Tokenizer(models.WordPiece.from_file(str(vocabulary), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    known = tokenizer.get_vocab()
    tokenizer.add_special_tokens([each for each in BERT if each in known])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", known["[SEP]"]), ("[CLS]", known["[CLS]"]))
    return tokenizer


def fields(message):
    """The (number, value) pairs of a protocol buffer message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        kind = key & 7
        if kind == 0:
            value = number()
        else:
            size = {1: 8, 5: 4}.get(kind) or number()
            value = message[at:at + size]
            at += size
        yield key >> 3, value


NORMAL_PIECE, UNKNOWN_PIECE, CONTROL_PIECE, BYTE_PIECE = 1, 2, 3, 6


def merges_of_pieces(pieces):
    """For each piece (its score and kind by name) the ways to make it of two others, the best score first."""
    ids = {piece: id for id, piece in enumerate(pieces)}
    merges = []
    for piece, (score, kind) in pieces.items():
        if kind != NORMAL_PIECE:
            continue
        ways = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        merges += [(score, way) for way in sorted(ways, key=lambda way: (ids[way[0]], ids[way[1]]))]
    return [way for score, way in sorted(merges, key=lambda each: (-each[0], -len(each[1][0]), -len(each[1][1])))]


def sentence_piece(path):
    """A SentencePiece model of the BPE kind that changes no letters, as `transformers` rebuilds it; and one that knows
    which tokens are special. (The first does not: special tokens in a text are not looked for.)"""
    pieces = {}
    for number, piece in fields(path.read_bytes()):
        if number == 1:
            parts = {3: NORMAL_PIECE, **dict(fields(piece))}
            pieces[parts[1].decode()] = struct.unpack("<f", parts[2])[0], parts[3]
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, merges_of_pieces(pieces),
                                     unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(content=" ", left=1)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", list(pieces).index("<s>"))])
    decoder = Tokenizer.from_str(tokenizer.to_str())
    decoder.add_special_tokens([piece for piece, (_, kind) in pieces.items() if kind in (UNKNOWN_PIECE, CONTROL_PIECE)])
    return tokenizer, decoder


def with_config(folder, files, model_type, into):
    """A copy of some files of a folder, with the config.json that a model's folder would have."""
    copy = into / f"{folder.name}_{model_type}"
    copy.mkdir(parents=True)
    for file in files:
        shutil.copy(folder / file, copy)
    (copy / "config.json").write_text(json.dumps({"model_type": model_type}))
    return copy


def of_folder(folder, into):
    """Every tokenizer in the folder; `into` is for files that are made on the way."""
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        if getattr(tokenizer.post_processor, "trim_offsets", False):
            tokenizer.post_processor.trim_offsets = False  # ours has the space before a word in the word's token
        rule = "bert" if isinstance(tokenizer.model, models.WordPiece) else "gpt2"
        yield Reference(f"{folder.name}/tokenizer.json", folder, tokenizer, rule, tokenizer.post_processor is not None)
    if (folder / "vocab.txt").exists():
        copy = with_config(folder, ["vocab.txt"], "bert", into)
        yield Reference(f"{folder.name}/vocab.txt", copy, word_piece(folder / "vocab.txt"), "bert", True)
    if (folder / "merges.txt").exists():
        tokenizer = byte_level(folder / "vocab.json", folder / "merges.txt")
        model_type = "roberta" if tokenizer.post_processor else "gpt2"
        copy = with_config(folder, ["vocab.json", "merges.txt"], model_type, into)
        yield Reference(f"{folder.name}/vocab.json", copy, tokenizer, "gpt2", True)
    if (folder / "tokenizer.model").exists():
        copy = with_config(folder, ["tokenizer.model"], "llama", into)
        tokenizer, decoder = sentence_piece(folder / "tokenizer.model")
        yield Reference(f"{folder.name}/tokenizer.model", copy, tokenizer, "none", True, decoder)


def of_folders(folder, into):
    """Those of a folder, or of the folders in it."""
    found = [each for inner in (folder, *sorted(folder.iterdir())) if inner.is_dir() for each in of_folder(inner, into)]
    if not found:
        raise FileNotFoundError(f"{folder}: has no tokenizers; expected tokenizer.json, vocab.txt, vocab.json with "
                                "merges.txt or tokenizer.model in it or in a folder of it")
    return found


def corpus(strings):
    """What is trained on: the documents of this repository, and some of the strings that are compared."""
    some = [string for string in strings[:500] if len(string) < 500]
    documents = [path.read_text() for path in sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("*.md"))]
    return documents + some


def train_word_piece(folder, texts, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=3000, limit_alphabet=1500, special_tokens=BERT, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    tokenizer.decoder = decoders.WordPiece(cleanup=lowercase)
    tokenizer.add_tokens([AddedToken("i do not", normalized=False)])
    return save(tokenizer, folder)


def train_byte_level(folder, texts, prefix_space):
    """Like RoBERTa's; with a prefix space it knows only the bytes of its texts, and an unknown token, and has no
    decoder."""
    unknown = {"unk_token": "<unk>", "fuse_unk": True} if prefix_space else {}
    tokenizer = Tokenizer(models.BPE(**unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    alphabet = [] if prefix_space else pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=3000, special_tokens=ROBERTA,
                                                             initial_alphabet=alphabet, show_progress=False))
    cls, sep = (tokenizer.token_to_id(name) for name in ("<s>", "</s>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", sep), ("<s>", cls), trim_offsets=False)
    if not prefix_space:
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_tokens([AddedToken("b é", normalized=False), AddedToken("éĠ", normalized=False)])
    return save(tokenizer, folder)


def save(tokenizer, folder):
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))
    return tokenizer


def message(*parts):
    """A protocol buffer message of (number, value) pairs: whole numbers, floats, bytes."""
    def varint(value):
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)

    def encode(number, value):
        if isinstance(value, float):
            return varint(number << 3 | 5) + struct.pack("<f", value)
        if isinstance(value, int):
            return varint(number << 3) + varint(value)
        return varint(number << 3 | 2) + varint(len(value)) + value

    return b"".join(encode(number, value) for number, value in parts)


def train_sentence_piece(folder, texts):
    """The file of a SentencePiece model whose merges were learned by the package."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=2000, limit_alphabet=200, show_progress=False))
    learned = sorted(trained.get_vocab(), key=trained.get_vocab().get)
    kinds = [("<unk>", UNKNOWN_PIECE), ("<s>", CONTROL_PIECE), ("</s>", CONTROL_PIECE),
             *((f"<0x{byte:02X}>", BYTE_PIECE) for byte in range(256)), *((piece, NORMAL_PIECE) for piece in learned)]
    pieces = [(1, message((1, piece.encode()), (2, -float(i) if kind == NORMAL_PIECE else 0.0), (3, kind)))
              for i, (piece, kind) in enumerate(kinds)]
    trainer = message((3, 2), (35, 1))  # BPE, with bytes to fall back to
    normalizer = message((1, b"identity"), (3, 1), (4, 0), (5, 1))  # a space before the text, and no space taken away
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(message(*pieces, (2, trainer), (3, normalizer)))


def trained(into, strings):
    """Small tokenizers of every kind, trained into a folder."""
    texts = corpus(strings)
    train_word_piece(into / "wordpiece", texts, lowercase=True)
    train_word_piece(into / "cased", texts, lowercase=False)
    train_byte_level(into / "bpe", texts, prefix_space=False)
    train_byte_level(into / "prefix", texts, prefix_space=True)
    train_sentence_piece(into / "sentencepiece", texts)
    found = [each for name in ("wordpiece", "cased", "bpe", "prefix", "sentencepiece")
             for each in of_folder(into / name, into / "copies")]
    # vocab.txt alone tells the case by its letters; merges without an alphabet leave bytes out
    for reference in found:
        if reference.name == "cased/vocab.txt":
            reference.tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    return found
