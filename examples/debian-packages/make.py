#!/usr/bin/env python3
"""Makes train.jsonl and test.jsonl from Debian's package index: nested records, and the section each belongs to.

    make.py Packages Translation-en [--out DIR]

The files may be plain or compressed (.gz, .bz2, .xz). The same index gives the same bytes: whatever is sampled is
sampled by a hash of the package's name. README.md says what the records are and why some packages are left out.
"""

import argparse
import bz2
import collections
import gzip
import hashlib
import json
import lzma
import pathlib
import re

# Sections that say what a package is about, each with the label it gets. The others say which language something is
# for (perl, rust, haskell, ...) or which form it has (libs, libdevel, doc, ...): a dependency gives those away, and
# misc says nothing.
SECTIONS = {name: name for name in (
    "admin comm database devel editors electronics fonts games gnome graphics hamradio kde mail math net otherosfs "
    "science sound tex text utils vcs video web x11").split()} | {"httpd": "web"}

MAX_DEPENDS = 20
WORDS = range(12, 301)  # of a long description: below it says nothing, above it is a catalogue
MAX_PARAGRAPHS = 40
MIN_TAGGED = 10  # a tag of fewer packages is left out
MAX_TAG_SHARE = 0.5  # as is one that gives the section away: its share in one section, all sections weighed alike
NEAR_DUPLICATE = 0.4  # Jaccard index of the word triples of two texts

PLACEHOLDER = re.compile(r"transition|dummy|debug(ging)? symbols|meta-?\s?package|empty package", re.I)
BULLET = re.compile(r"(?:[-*+•·–o]|\(?\d{1,2}[.)])\s+(?=\S)")
REFERENCE = re.compile(r"\s*\[\d{1,2}\]")
LINK = re.compile(
    r"\b(?:https?|ftp|git|svn|irc)://\S+|\bwww\.\S+|\bURL:"
    r"|\b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|io|info|de|fr|uk)/\S+"
    r"|\b[\w-]+(?:\.[\w-]+)+\.(?:com|org|net|edu|info|de|fr|uk)\b"  # two labels are a name: OpenOffice.org
    r"|[\w.+-]+@[\w-]+\.[\w.-]+|\S+\s*[\[(]at[\])]\s*\S+|\w+ AT \w+ DOT \w+")
BRACKETED = re.compile(r"\s*[(<\[][^()<>\[\]]*[)>\]]")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"(])")

# "by Ada B. Lovelace and Alan van Turing", with the verb before it. Passive sentences go as a whole.
WORD = r"(?!The )[A-ZÀ-Þ][\w'’-]*[a-zà-ÿ]"
NAME = (rf"(?:(?:Dr|Prof|Mr|Ms)\.? |[Pp]rofessor )?{WORD}(?: [A-Z]\.?)*"
        rf"(?: (?:van|von|de|der|den|di|la|le|du))*(?: {WORD}){{1,2}}")
VERBS = (r"(?:re-?)?(?:written|created|developed|designed|made|maintained|invented|programmed|drawn|composed|recorded"
         r"|ported|published|started|founded|coded|done|proposed|originated|digitised|inspired|modified|improved)")
AUTHOR = re.compile(rf",?\s*\b(?:(?:originally|initially|first) )?(?:{VERBS} )?"
                    r"(?<!used )(?<!supported )(?<!produced )(?<!provided )(?<!generated )(?<!conducted )"
                    rf"(?:[Bb]y|courtesy of) {NAME}(?:(?:, and |, | and | & ){NAME})*")
AUTHORSHIP = re.compile(rf"\b(?:was|were|is|are|been) (?:\w+ )?{VERBS} (?:and {VERBS} )?by {NAME}"
                        r"|\b[Aa]uthors?\b ?(?::|by\b|is\b|are\b)|\b[Mm]aintainers?:"
                        r"|\b[Cc]opyright (?:\(|©|\d|by|[A-Z])")


def rank(name, purpose=""):
    """A number that depends on nothing but the name: sorting by it shuffles."""
    return hashlib.sha256(f"debian-packages {purpose} {name}".encode()).digest()


def stanzas(path):
    """The stanzas of a control file, as dictionaries; continuation lines keep their leading space."""
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(pathlib.Path(path).suffix, open)
    fields, last = {}, None
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if not line:
                if fields:
                    yield fields
                fields = {}
            elif line[0] in " \t":
                fields[last] += "\n" + line
            else:
                last, _, value = line.partition(":")
                fields[last] = value.strip()
    if fields:
        yield fields


def paragraphs(lines):
    """The paragraphs of a long description; every item of a list is one of its own, without its bullet.

    A full stop stands for an empty line; lines of one space are prose, lines of more are set as they stand.
    """
    found, fresh = [], True  # fresh: the next line starts a paragraph
    indent, previous = None, 0  # of the bullet of the current item, None outside of lists; of the line before
    for line in lines:
        text = line.strip()
        if text in ("", "."):
            fresh, indent = True, None
            continue
        depth = len(line) - len(line.lstrip())
        bullet = BULLET.match(text)
        if bullet and depth < 2 and (text[0] == "o" or text[0].isdigit() and not fresh and indent is None):
            bullet = None  # a word or a number at the start of a line
        if bullet:
            text, indent, fresh = text[bullet.end():], depth, True
        elif not text[0].islower() and indent is not None and depth <= indent:
            indent, fresh = None, True  # the list is over
        elif indent is None:
            fresh = fresh or (depth > 1) != (previous > 1) or depth > 1 and not text[0].islower()
        if fresh:
            found.append(text)
        else:
            found[-1] += " " + text
        fresh, previous = False, depth
    return found


def clean(text):
    """Without the addresses of pages and people, and without authors as far as they can be told."""
    text = REFERENCE.sub("", " ".join(text.replace("``", '"').replace("''", '"').split()))
    text = BRACKETED.sub(lambda m: "" if LINK.search(m[0]) else m[0], text)
    kept = [s for s in SENTENCE_END.split(text) if not LINK.search(s) and not AUTHORSHIP.search(s)]
    return AUTHOR.sub("", " ".join(kept)).strip()


def words(texts):
    return re.findall(r"\w+", " ".join(texts).lower())


def record(package, description):
    """One package as a record, or None when there is too little or too much to read."""
    summary, *lines = description.split("\n")
    text = [p for p in map(clean, paragraphs(lines)) if re.search(r"\w\w", p)]
    if len(words(text)) not in WORDS or len(text) > MAX_PARAGRAPHS or PLACEHOLDER.search(summary):
        return None
    depends = [re.match(r"[a-z0-9.+-]+", d.strip())[0] for d in package.get("Depends", "").split(",") if d.strip()]
    return {
        "name": package["Package"],
        "summary": clean(summary) or summary,
        "description": text,
        "depends": list(dict.fromkeys(depends))[:MAX_DEPENDS],
        "tags": sorted(package.get("Tag", "").replace(",", " ").split()),
        "architecture_independent": package["Architecture"] == "all",
        "installed_size": int(package.get("Installed-Size", 0)),
        "download_size": -(-int(package["Size"]) // 1024),
        "section": SECTIONS[package["Section"]],
    }


def one_a_source(packages, descriptions):
    """One record of every source package: that of the package named like it, else of the shortest name."""
    best = {}
    for package in packages:
        description = descriptions.get((package["Package"], package.get("Description-md5")))
        if package.get("Section") not in SECTIONS or description is None:
            continue
        made = record(package, description)
        if made is None:
            continue
        source = package.get("Source", package["Package"]).split()[0]
        key = (made["name"] != source, len(made["name"]), made["name"])
        if source not in best or key < best[source][0]:
            best[source] = key, made
    return [made for _, made in best.values()]


def drop_telling_tags(records):
    """Leaves the tags that are neither rare, nor unfinished, nor another name of a section. Returns those left."""
    sizes = collections.Counter(r["section"] for r in records)
    carriers = collections.defaultdict(collections.Counter)
    for r in records:
        for tag in r["tags"]:
            carriers[tag][r["section"]] += 1
    kept = set()
    for tag, counts in carriers.items():
        rates = [count / sizes[section] for section, count in counts.items()]
        telling = max(rates) / sum(rates) > MAX_TAG_SHARE
        if sum(counts.values()) >= MIN_TAGGED and not telling and not tag.endswith("::TODO"):
            kept.add(tag)
    for r in records:
        r["tags"] = [tag for tag in r["tags"] if tag in kept]
    return sorted(kept)


def triples(r):
    text = words([r["summary"], *r["description"]])
    return set(zip(text, text[1:], text[2:]))


def sample(records, per_section):
    """At most per_section records of each section, no two of them near duplicates, in the order of their ranks."""
    chosen = collections.defaultdict(list)
    accepted, holders = [], collections.defaultdict(list)  # triples of every record taken; who has a triple
    for r in sorted(records, key=lambda r: rank(r["name"])):
        if len(chosen[r["section"]]) == per_section:
            continue
        mine = triples(r)
        shared = collections.Counter(i for t in mine for i in holders[t])
        if any(n >= NEAR_DUPLICATE * (len(mine) + len(accepted[i]) - n) for i, n in shared.items()):
            continue
        for t in mine:
            holders[t].append(len(accepted))
        accepted.append(mine)
        chosen[r["section"]].append(r)
    return chosen


def write(path, records):
    """One record a line, in an order in which every part of the file is a fair sample of it."""
    lines = [json.dumps(r, ensure_ascii=False) + "\n" for r in sorted(records, key=lambda r: rank(r["name"], "order"))]
    data = "".join(lines).encode()
    path.write_bytes(data)
    print(f"{path.name}: {len(lines)} records, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", help="the Packages file of one distribution, component and architecture")
    parser.add_argument("translation", help="its Translation-en file, which has the long descriptions")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="folder to write to")
    parser.add_argument("--per-section", type=int, default=180, help="at most so many of each (default %(default)s)")
    parser.add_argument("--test-share", type=float, default=0.2, help="of each section (default %(default)s)")
    arguments = parser.parse_args()

    descriptions = {(s["Package"], s["Description-md5"]): s["Description-en"] for s in stanzas(arguments.translation)}
    records = one_a_source(stanzas(arguments.packages), descriptions)
    if not records:
        parser.error(f"no package of {arguments.packages} has its description in {arguments.translation}")
    tags = drop_telling_tags(records)
    chosen = sample(records, arguments.per_section)

    train, test = [], []
    for section in sorted(chosen):
        cut = round(len(chosen[section]) * arguments.test_share)
        test += chosen[section][:cut]
        train += chosen[section][cut:]
        print(f"{section:12} {len(chosen[section]) - cut:4} train {cut:3} test")
    print(f"{len(tags)} tags")
    write(arguments.out / "train.jsonl", train)
    write(arguments.out / "test.jsonl", test)


if __name__ == "__main__":
    main()
