"""Strings on which tokenizers may differ: every script, code points that nobody has assigned, emoji, marks, controls,
long words, all kinds of white space, numbers, and mixtures of them. The same seed gives the same strings."""

import random

PAGE = 64  # code points that a string takes its letters from
NUM_PAGES = 0x110000 // PAGE
COMMON_PAGES = 0x20000 // PAGE  # planes 0 and 1, where the scripts are

SPACES = list("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\u180e") + [
    chr(code) for code in range(0x2000, 0x200B)]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, *range(0x200B, 0x2010),
                                   *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFFF9, 0x10000), 0xFEFF,
                                   0xE000, 0xF8FF, 0xE0001, *range(0xE0020, 0xE0080), 0xF0000, 0x10FFFD, 0x10FFFF)]
MARKS = [chr(code) for code in (*range(0x300, 0x370), *range(0x483, 0x48A), *range(0x591, 0x5BE), *range(0x64B, 0x660),
                                *range(0x93C, 0x950), *range(0xE31, 0xE3B), *range(0x1AB0, 0x1ACF),
                                *range(0x302A, 0x3030), 0x3099, 0x309A, *range(0x20D0, 0x20F1), *range(0xFE00, 0xFE10), *range(0xFE20, 0xFE30),
                                *range(0x1D165, 0x1D16A), *range(0x1D16D, 0x1D173))]
EMOJI = ["😀", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇺", "🇯🇵🇫🇷", "1️⃣", "#⃣", "❤️", "☺", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🫠",
         "👁️‍🗨️", "©️", "⌚", "🧑🏿‍🤝‍🧑🏻", "\u200d", "\ufe0f"]
NUMBERS = ["0", "42", "007", "3.14", "1,234,567.89", "-1e-10", "½", "Ⅷ", "x²", "①", "٣٤٥", "१२३", "一二三", "𝟘𝟙",
           "1st", "50%", "$9.99", "2024-02-29", "12:34", "0xFF", "૧૨", "༣", "௧௨", "௰", "㉈", "〇", "𒐀",
           "1\u00a0000", "5′6″"]
WORDS = """the The THE of and quick brown fox don't I'm you're we've he'll she'd it's rock'n'roll 'tis isn’t
state-of-the-art e.g. U.S.A. naïve café résumé Ångström İstanbul ıslak STRASSE straße ſchön ﬁne ǅungla ΣΊΣΥΦΟΣ
σίσυφος Ελλάδα Привет мир ёлка Україна ՀԱՅԵՐԵՆ עִבְרִית שלום العَرَبِيَّة مرحبا فارسی हिन्दी नमस्ते বাংলা
தமிழ் తెలుగు ಕನ್ನಡ മലയാളം ไทย ສະບາຍດີ မြန်မာ ខ្មែរ ქართული አማርኛ 中文 漢字 日本語 ひらがな カタカナ ﾊﾝｶｸ 한국어 각 각 Tiếng Việt
việt Yorùbá ȷ ß ﷺ ㎏ Å ﬃ user@example.org https://example.org/a?b=c#d foo_bar fooBar C++ #tag @name $100
<b>html</b> {"json": [1, 2]} \\n ... … -- — “quoted” ‘q’ «g» ¿qué? ¡sí! !!! ??? :-) ;) <3 ``x'' (a) [b] {c} /
\\ | ~ ^ ` a/b and/or n't 's 'S '' ''' '""".split()
SPECIALS = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]",
            "[mask]", "<MASK>", "<mask", "[SEP", "▁", "##", "##s", "Ġ", "<0x41>"]


def scalar(code):
    """The character of a code point; a letter for surrogates, which are in no text."""
    return chr(code) if not 0xD800 <= code < 0xE000 else "s"


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pages = self._shuffled_pages()
        self.makers = [self.of_page, self.of_page, self.of_page, self.of_page, self.of_anything, self.of_emoji,
                       self.of_marks, self.of_controls, self.of_long_word, self.of_spaces, self.of_numbers,
                       self.of_words, self.of_words, self.of_specials, self.of_mixture]

    def _shuffled_pages(self):
        """Every page of planes 0 and 1, again and again, and some of the others between them."""
        common, rare = list(range(COMMON_PAGES)), list(range(COMMON_PAGES, NUM_PAGES))
        while True:
            self.random.shuffle(common)
            yield from common
            yield from self.random.sample(rare, COMMON_PAGES // 8)

    def strings(self, count):
        return [self.makers[i % len(self.makers)]() for i in range(count)]

    def some(self, choices, most=8, between=("", "", " ")):
        count = self.random.randint(1, most)
        return "".join(self.random.choice(choices) + self.random.choice(between) for _ in range(count))

    def of_page(self):
        first = next(self.pages) * PAGE
        letters = [scalar(first + i) for i in range(PAGE)]
        return self.some(letters, most=40, between=("", "", "", " ", "a", ".", "1"))

    def of_anything(self):
        return "".join(scalar(self.random.randrange(0x110000 if self.random.random() < 0.2 else 0x20000))
                       for _ in range(self.random.randint(0, 20)))

    def of_emoji(self):
        return self.some(EMOJI + WORDS[:8], between=("", "", " ", "\n"))

    def of_marks(self):
        bases = list("aeiouAEIO1!. ") + ["한", "漢", "क", "ا", "ᄀ", "각", "ệ", "ﷺ", "Ω", "𝅘𝅥𝅮"]
        return "".join(self.random.choice(bases) + "".join(self.random.choices(MARKS, k=self.random.randint(0, 6)))
                       for _ in range(self.random.randint(1, 12)))

    def of_controls(self):
        return self.some(CONTROLS + WORDS[:20], most=16)

    def of_long_word(self):
        letters = self.random.choice(["a", "ab", "abcdefghijklmnopqrstuvwxyz", "é", "漢字", "한", "0123456789", "!", "ا",
                                      "𝔸", "-", "the", " ", "\n"])
        return "".join(self.random.choices(letters, k=self.random.choice([20, 60, 99, 100, 101, 500, 3000])))

    def of_spaces(self):
        return "".join(self.random.choice(WORDS + ["", "", ""]) + "".join(
            self.random.choices(SPACES, k=self.random.randint(0, 5))) for _ in range(self.random.randint(1, 10)))

    def of_numbers(self):
        return self.some(NUMBERS + ["kg", "-", "/"], between=("", " ", ","))

    def of_words(self):
        joined = self.some(WORDS, most=30, between=(" ", " ", " ", "", ", ", ". ", "\n", "  "))
        return self.random.choice([str, str, str, str.upper, str.title, str.swapcase])(joined)

    def of_specials(self):
        return self.some(SPECIALS + WORDS[:12], between=("", " ", "  ", "\n"))

    def of_mixture(self):
        return "".join(self.random.choice(self.makers[:-1])()[:80] for _ in range(self.random.randint(2, 4)))


BROKEN = [b"\x80", b"\xbf\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe0\x80\xaf", b"\xe2\x82", b"\xed\xa0\x80",
          b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x80\x80\xaf", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf5\x80",
          b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff", b"\xff\xfe"]


def broken(strings, seed):
    """Bytes that are no valid UTF-8, made of some of the strings, and the text that Python makes of them: bytes put in,
    changed, taken out, and the end cut off."""
    choose = random.Random(seed)
    found = []
    for string in strings:
        data = bytearray(string.encode()[:2000])
        for _ in range(choose.randint(1, 4)):
            at = choose.randint(0, len(data))
            how = choose.randrange(4)
            data[at:at + (0, 1, 1, len(data))[how]] = (choose.choice(BROKEN), choose.randbytes(1), b"", b"")[how]
        text = bytes(data).decode("utf-8", "replace")
        if text.encode() != data:
            found.append((bytes(data), text))
    return found


def strings(count, seed=20240229):
    return ["", *Generator(seed).strings(count)][:count]
