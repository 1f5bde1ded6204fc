"""Code points that ICU and the `tokenizers` package class differently, because they know different versions of Unicode.

The rule: ICU is asked for the properties of a code point itself (not what our tokenizers make of them), the package for
what its normalizers and splitters do with it; where the two disagree, the code point is left out of a comparison."""

import json
import string
import subprocess

from tokenizers import normalizers, pre_tokenizers


class Properties(dict):
    """What ICU knows of each code point that is asked for."""

    def __init__(self, program):
        self.program = program

    def add(self, characters):
        wanted = sorted(set(characters) - self.keys())
        answers = subprocess.run([self.program, "--properties"], input="".join(f"{ord(each)}\n" for each in wanted),
                                 capture_output=True, check=True, text=True, encoding="utf-8").stdout.split("\n")[:-1]
        self.update(zip(wanted, map(json.loads, answers), strict=True))


def gpt2_class(character):
    """Letter, number, white space or another, by what GPT-2's rule joins with the character."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True).pre_tokenize_str
    joined = [kind for kind, other in (("L", "a"), ("N", "1"), ("O", "!")) if len(split(other + character)) == 1]
    return joined[0] if joined else "S"


def icu_gpt2_class(of):
    return of["category"][0] if of["category"][0] in "LN" else "S" if of["white_space"] else "O"


def gpt2_differs(character, properties):
    return gpt2_class(character) != icu_gpt2_class(properties[character])


CLEAN = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
STRIP = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
LOWER = normalizers.Lowercase()
DECOMPOSE = normalizers.NFD()
SPLIT = pre_tokenizers.BertPreTokenizer()
LAST_MARK = "\u0345"  # the one with the highest combining class


def bert_steps(character):
    """What each step of BERT's rules makes of the character, by the package."""
    return {"cleaned": CLEAN.normalize_str(character), "decomposed": DECOMPOSE.normalize_str(character),
            "stripped": STRIP.normalize_str(character), "lower": LOWER.normalize_str(character),
            "pieces": len(SPLIT.pre_tokenize_str(f"a{character}a")),
            "moves": DECOMPOSE.normalize_str(LAST_MARK + character) != LAST_MARK + DECOMPOSE.normalize_str(character)}


def icu_bert_steps(character, properties):
    """The same, by the properties that ICU gives."""
    of = properties[character]
    is_control = of["category"] in ("Cc", "Cf", "Co") and character not in "\t\n\r"
    is_gone = is_control or character in "\0\ufffd"
    is_punctuation = character in string.punctuation or of["category"][0] == "P"
    first = properties[of["decomposed"][0]]
    return {"cleaned": "" if is_gone else " " if of["white_space"] else character, "decomposed": of["decomposed"],
            "stripped": "".join(part for part in of["decomposed"] if properties[part]["category"] != "Mn"),
            "lower": of["lower"], "pieces": 2 if of["white_space"] else 3 if is_punctuation else 1,
            "moves": 0 < first["combining_class"] < properties[LAST_MARK]["combining_class"]}


def bert_differs(character, properties):
    return bert_steps(character) != icu_bert_steps(character, properties)


def moves_marks(text):
    """BERT's rules bring the marks of the text into another order."""
    return DECOMPOSE.normalize_str(text) != "".join(map(DECOMPOSE.normalize_str, text))


RULES = {"bert": bert_differs, "gpt2": gpt2_differs, "none": lambda character, properties: False}


def classed_differently(rule, characters, properties):
    """Those of `characters` that are left out of a comparison."""
    characters = set(characters)
    properties.add(characters | {LAST_MARK})
    properties.add("".join(properties[each]["decomposed"] for each in characters))
    return {each for each in characters if RULES[rule](each, properties)}
