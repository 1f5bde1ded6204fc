"""The cache of generation: its rows are those of attention over the whole sequence, whatever is done to it between."""

import copy
import json
import math
import pickle

import pytest
import torch

from ramify import Forest, HierarchicalCache, attention

MODES = {"none": {"tie": "none", "causal": "block"}, "block": {"tie": "block", "causal": "prefix"}}


def rows(tokens, heads=3, key_heads=None, dim=5, value_dim=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    key_heads, value_dim = key_heads or heads, value_dim or dim
    return (torch.randn(tokens, heads, dim, generator=generator), torch.randn(tokens, key_heads, dim, generator=generator),
            torch.randn(tokens, key_heads, value_dim, generator=generator))


def new_cache(q, k, v, **options):
    return HierarchicalCache(q.shape[1], q.shape[2], key_heads=k.shape[1], value_dim=v.shape[2], **options)


def append(cache, q, k, v, begin=0, end=None):
    part = slice(begin, end)
    return cache.append(q[None, part], k[None, part], v[None, part])[0]


def parallel(q, k, v, forest, tie):
    """In float64: what both forms in float32 are measured against."""
    return attention(q.double(), k.double(), v.double(), forest, **MODES[tie]).float()


def exact_window(q, k, v, hierarchy, window):
    """The definition (docs/algorithm.md, section 6), one row at a time: the last `window` tokens and the token itself one
    by one, and of what is older the nodes to the left of the path to the first token of the window."""
    out = []
    sizes = [int(size) for size in hierarchy.rstrip("*").split(",")]
    for i in range(len(q)):
        first = max(0, i - window)
        groups, begin, spans = [], 0, [1]  # complete nodes of the prefix [0, first), the largest first
        while spans[-1] <= first and (len(spans) <= len(sizes) or hierarchy.endswith("*")):
            spans.append(spans[-1] * sizes[min(len(spans), len(sizes)) - 1])
        for span in reversed(spans):
            while begin + span <= first:
                groups.append((begin, begin + span))
                begin += span
        keys = [k[a:b].mean(0) for a, b in groups] + [k[j] for j in range(first, i + 1)]
        values = [v[a:b].mean(0) for a, b in groups] + [v[j] for j in range(first, i + 1)]
        counts = torch.tensor([float(b - a) for a, b in groups] + [1.0] * (i + 1 - first), dtype=q.dtype)
        group = q.shape[1] // k.shape[1]
        keys = torch.stack(keys).repeat_interleave(group, 1)
        values = torch.stack(values).repeat_interleave(group, 1)
        scores = torch.einsum("hd,jhd->hj", q[i], keys) / math.sqrt(q.shape[2]) + counts.log()
        out.append(torch.einsum("hj,jhd->hd", scores.softmax(1), values))
    return torch.stack(out)


@pytest.mark.parametrize("tie", MODES)
@pytest.mark.parametrize("hierarchy, tokens", [("16*", 1), ("2*", 70), ("3*", 100), ("16*", 3000), ("5*", 700), ("2,4,8,16", 900),
                                               ("4,2", 60)])
def test_every_row_is_that_of_attention_over_the_whole_sequence(tie, hierarchy, tokens):
    q, k, v = rows(tokens)
    expected = parallel(q, k, v, Forest.windows([tokens], hierarchy), tie)
    torch.testing.assert_close(append(new_cache(q, k, v, hierarchy=hierarchy, tie=tie), q, k, v), expected, rtol=1e-5,
                               atol=1e-5)


@pytest.mark.parametrize("tie", MODES)
def test_every_row_is_the_last_one_of_the_cut_tree(tie):
    q, k, v = rows(40)
    cache = new_cache(q, k, v, hierarchy="3*", tie=tie)
    for i in range(40):
        row = append(cache, q, k, v, i, i + 1)
        cut = parallel(q[:i + 1], k[:i + 1], v[:i + 1], Forest.windows([i + 1], "3*"), tie)
        torch.testing.assert_close(row[0], cut[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tie", MODES)
def test_heads_share_keys_and_values_have_their_own_width(tie):
    q, k, v = rows(150, heads=6, key_heads=2, dim=17, value_dim=9)
    expected = parallel(q, k, v, Forest.windows([150], "4*"), tie)
    torch.testing.assert_close(append(new_cache(q, k, v, hierarchy="4*", tie=tie), q, k, v), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tie, window", [("none", 0), ("block", 0), ("none", 7), ("none", 40)])
def test_chunks_give_the_same_bits_as_one_token_at_a_time(tie, window):
    q, k, v = rows(90)
    one_by_one = new_cache(q, k, v, hierarchy="4*", tie=tie, window=window)
    expected = torch.cat([append(one_by_one, q, k, v, i, i + 1) for i in range(90)])
    for chunk in (1000, 31, 16):
        cache = new_cache(q, k, v, hierarchy="4*", tie=tie, window=window)
        got = torch.cat([append(cache, q, k, v, i, i + chunk) for i in range(0, 90, chunk)])
        assert torch.equal(got, expected)
        assert cache.to_bytes() == one_by_one.to_bytes()


@pytest.mark.parametrize("window", [0, 1, 5, 16, 200])
@pytest.mark.parametrize("hierarchy", ["4*", "2,3"])
def test_the_last_tokens_are_seen_one_by_one(window, hierarchy):
    q, k, v = rows(80, heads=2, key_heads=1)
    got = append(new_cache(q, k, v, hierarchy=hierarchy, window=window), q, k, v)
    torch.testing.assert_close(got, exact_window(q.double(), k.double(), v.double(), hierarchy, window).float(), rtol=1e-5,
                               atol=1e-5)


def test_a_window_as_long_as_the_sequence_is_exact_attention():
    q, k, v = rows(60)
    got = append(new_cache(q, k, v, window=60), q, k, v)
    exact = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v)), is_causal=True)
    torch.testing.assert_close(got, exact.transpose(0, 1), rtol=1e-5, atol=1e-5)


def nested(lengths):
    """Sentences of so many tokens, in windows of 3."""
    sentences, begin = [], 0
    for length in lengths:
        sentences.append(list(range(begin, begin + length)))
        begin += length
    while len(sentences) > 1:
        sentences = [sentences[i:i + 3] for i in range(0, len(sentences), 3)]
    return sentences[0]


@pytest.mark.parametrize("tie", MODES)
def test_nodes_that_the_caller_closes(tie):
    lengths = [4, 1, 7, 2, 2, 5, 30, 3, 1, 6, 2]
    q, k, v = rows(sum(lengths))
    cache = new_cache(q, k, v, hierarchy="0,3*", tie=tie)
    got, begin = [], 0
    for length in lengths:
        got.append(append(cache, q, k, v, begin, begin + length))
        cache.close()
        begin += length
    expected = parallel(q, k, v, Forest.from_nested([nested(lengths)]), tie)
    torch.testing.assert_close(torch.cat(got), expected, rtol=1e-5, atol=1e-5)


def test_a_close_waits_for_the_window_and_can_be_rolled_back():
    q, k, v = rows(30)
    plain = new_cache(q, k, v, hierarchy="0,3*", window=6)
    append(plain, q, k, v, 0, 12)
    other = plain.fork()
    other.close()
    append(other, q, k, v, 12, 14)
    other.roll_back(3)  # behind the close
    append(other, q, k, v, 11, 30)
    append(plain, q, k, v, 12, 30)
    assert other.to_bytes() == plain.to_bytes()


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("tie, window", [("none", 0), ("block", 0), ("none", 5), ("none", 64)])
def test_what_was_rolled_back_was_never_there(tie, window, close):
    q, k, v = rows(120)
    cache = new_cache(q, k, v, hierarchy="4*", tie=tie, window=window)
    undone_once = 0
    for i in range(110):
        append(cache, q, k, v, i, i + 1)
        straight, detour = cache.fork(), cache.fork()
        append(detour, k, q, v, 0, i % 4 + 1)  # other rows
        if detour.max_roll_back() < i % 4 + 1:
            continue
        detour.roll_back(i % 4 + 1)
        undone_once += 1
        if close:
            straight.close(2), detour.close(2)
        assert torch.equal(append(straight, q, k, v, i, i + 9), append(detour, q, k, v, i, i + 9))
        assert straight.to_bytes() == detour.to_bytes()
    assert undone_once > 20


def test_rolling_back_too_far_is_an_error_and_changes_nothing():
    q, k, v = rows(20)
    cache = new_cache(q, k, v, hierarchy="4*")
    append(cache, q, k, v, 0, 18)
    before = cache.to_bytes()
    assert cache.max_roll_back() == 2
    with pytest.raises(ValueError, match="cannot roll back 3 tokens; 2 are open still"):
        cache.roll_back(3)
    with pytest.raises(ValueError, match="cannot roll back -1"):
        cache.roll_back(-1)
    assert cache.to_bytes() == before


@pytest.mark.parametrize("tie", MODES)
def test_beams_fork_and_are_reordered(tie):
    q, k, v = rows(50)
    cache = new_cache(q, k, v, hierarchy="4*", tie=tie)
    append(cache, q, k, v, 0, 30)
    beams = cache.fork()
    beams.reorder([0, 0, 0])
    assert beams.num_sequences == 3
    three = [rows(10, seed=seed) for seed in (1, 2, 3)]
    beams.append(*(torch.stack([one[part] for one in three]) for part in range(3)))
    beams.reorder([2, 0])
    got = beams.append(*(x[None, 30:35].expand(2, -1, -1, -1) for x in (q, k, v)))
    for place, beam in enumerate([2, 0]):
        alone = cache.fork()
        append(alone, *three[beam])
        assert torch.equal(append(alone, q, k, v, 30, 35), got[place])
    assert cache.tokens() == 30


def test_one_sequence_of_a_batch_grows_alone():
    q, k, v = rows(12)
    cache = new_cache(q, k, v, sequences=2)
    cache.append(q[None], k[None], v[None], sequence=1)
    assert [cache.tokens(0), cache.tokens(1)] == [0, 12]
    assert torch.equal(cache.look(q[None, :1].expand(2, -1, -1, -1))[0], torch.zeros(1, 3, 5))


def test_looking_leaves_the_cache_alone():
    q, k, v = rows(33)
    cache = new_cache(q, k, v, hierarchy="4*", window=3)
    append(cache, q, k, v, 0, 32)
    before = cache.to_bytes()
    row = cache.look(q[None, 32:])[0]
    assert cache.to_bytes() == before
    # without itself: the row of the next token, were its own score -inf
    far = new_cache(q, k, v, hierarchy="4*", window=3)
    append(far, q, k, v, 0, 32)
    last = append(far, q, torch.cat([k[:32], -1e4 * q[32:]]), v, 32, 33)
    torch.testing.assert_close(row, last, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="needs tie=none"):
        new_cache(q, k, v, tie="block").look(q[None])


@pytest.mark.parametrize("tie, window", [("none", 0), ("block", 0), ("none", 9)])
def test_bytes_bring_it_back(tie, window):
    q, k, v = rows(77, heads=4, key_heads=2)
    cache = new_cache(q, k, v, hierarchy="0,3,2*", tie=tie, window=window, owner="a model", scale=0.3)
    append(cache, q, k, v, 0, 50)
    cache.close(2)
    for again in (cache.restore(cache.to_bytes()), HierarchicalCache.from_bytes(cache.to_bytes()),
                  pickle.loads(pickle.dumps(cache)), copy.deepcopy(cache)):
        assert again.to_bytes() == cache.to_bytes()
        assert again.bytes() > 0
        assert torch.equal(append(again, q, k, v, 50), append(cache.fork(), q, k, v, 50))


def test_broken_bytes_are_errors():
    q, k, v = rows(40)
    cache = new_cache(q, k, v, hierarchy="3*", tie="block", owner="one")
    append(cache, q, k, v)
    data = cache.to_bytes()
    line, numbers = data.split(b"\n", 1)
    header = json.loads(line)

    def with_header(**changes):
        return json.dumps({**header, **changes}).encode() + b"\n" + numbers

    def resealed(changed):
        import hashlib
        return json.dumps({**header, "sha256": hashlib.sha256(changed).hexdigest()}).encode() + b"\n" + changed

    hostile = [b"", b"\n", b"{}\n", data[:-1], data[:len(line)], data + b"x", b"x" * 100_000, data[::-1],
               with_header(version=2), with_header(format="x"), with_header(heads=-1), with_header(heads="x"), with_header(dim=1 << 40),
               with_header(dim=3), with_header(hierarchy="1*"), with_header(tie="x"), with_header(window=-1), with_header(window=5),
               with_header(key_heads=2), with_header(hierarchy="2*"), with_header(tie="none"), resealed(numbers + b"12345678"),
               resealed(b""), resealed(numbers[:8]), resealed(b"\xff" * len(numbers)), resealed(bytes(len(numbers)))]
    hostile += [resealed(numbers[:cut]) for cut in range(0, len(numbers), 97)]
    for at in range(0, min(len(numbers), 800), 8):  # every count and size at the front, made huge
        hostile.append(resealed(numbers[:at] + b"\xff\xff\xff\xff\xff\xff\xff\x7f" + numbers[at + 8:]))
    for bad in hostile:
        try:
            restored = HierarchicalCache.from_bytes(bad)
        except ValueError as error:
            assert "cache:" in str(error)
        else:  # a number was another number: still a cache that works
            assert append(restored, q, k, v, 0, 5).shape == (5, 3, 5)
    # sizes whose product is 0 in 64 bits, and heads with different trees
    huge = {**header, "heads": 1, "key_heads": 1, "dim": 16, "value_dim": 16, "tie": "none", "window": 1 << 60}
    numbers_of = lambda *values: b"".join(value.to_bytes(8, "little") for value in values)  # noqa: E731
    body = numbers_of(1, 1 << 60, 1, *[0] * 5, 0, 0, 0)
    huge["sha256"] = __import__("hashlib").sha256(body).hexdigest()
    with pytest.raises(ValueError, match="cache: window"):
        HierarchicalCache.from_bytes(json.dumps(huge).encode() + b"\n" + body)
    two = [new_cache(*(x[:, :1] for x in (q, k, v)), hierarchy="0,16*", window=4) for _ in range(2)]
    for cache_of_head, close in zip(two, (False, True)):
        append(cache_of_head, *(x[:, :1] for x in (q, k, v)), 0, 30)
        if close:
            cache_of_head.close()
        append(cache_of_head, *(x[:, :1] for x in (q, k, v)), 30, 40)
    bodies = [one.to_bytes().split(b"\n", 1)[1] for one in two]
    assert bodies[0][:8] == bodies[1][:8] == numbers_of(1)
    joined = bodies[0] + bodies[1][8:]
    both = {**json.loads(two[0].to_bytes().split(b"\n", 1)[0]), "heads": 2, "key_heads": 2,
            "sha256": __import__("hashlib").sha256(joined).hexdigest()}
    with pytest.raises(ValueError, match="different trees"):
        HierarchicalCache.from_bytes(json.dumps(both).encode() + b"\n" + joined)
    with pytest.raises(ValueError, match="belongs to 'one', not to 'two'"):
        new_cache(q, k, v, hierarchy="3*", tie="block", owner="two").restore(data)
    with pytest.raises(ValueError, match="was made with other options: 3 heads .* hierarchy 3\\*, tie block"):
        new_cache(q, k, v, hierarchy="4*", tie="block", owner="one").restore(data)
    assert append(cache.restore(data), q, k, v).shape == q.shape


def test_many_closed_levels_can_be_stored():
    q, k, v = rows(3, heads=1)
    cache = new_cache(q, k, v, hierarchy="2*")
    for i in range(3):
        append(cache, q, k, v, i, i + 1)
        cache.close(61)
    assert copy.deepcopy(cache).to_bytes() == cache.to_bytes()


@pytest.mark.parametrize("tie, rows_a_level", [("none", 1), ("block", 1)])
def test_memory_is_b_log_n(tie, rows_a_level):
    heads, dim = 2, 4
    cache = HierarchicalCache(heads, dim, hierarchy="16*", tie=tie)
    q, k, v = rows(4096, heads=heads, dim=dim)
    largest = 0
    for chunk in range(16):
        append(cache, q, k, v)
        largest = max(largest, cache.bytes())
    levels = math.ceil(math.log(cache.tokens(), 16)) + 1
    numbers = {"none": 2 * dim + 1 + 2, "block": 3 * dim + 2 + 2}[tie]  # rows, the logarithm, the size (8 bytes)
    assert largest <= heads * levels * 16 * numbers * 4
    assert cache.tokens() == 65536


def test_memory_with_a_window_is_the_window_more():
    q, k, v = rows(5000, heads=1, dim=4)
    with_window, without = (new_cache(q, k, v, window=window) for window in (100, 0))
    append(with_window, q, k, v), append(without, q, k, v)
    assert with_window.bytes() <= without.bytes() + 16 * 11 * 4 + 2 * 101 * 8 * 4


@pytest.mark.parametrize("changes, message", [
    ({"heads": 0}, "key heads must divide heads"),
    ({"heads": 4, "key_heads": 3}, "3 key heads, 4 heads"),
    ({"dim": 0}, "expected 1 to 65536"),
    ({"hierarchy": ""}, "expected window sizes"),
    ({"hierarchy": "1*"}, "expected window sizes"),
    ({"hierarchy": "0*"}, "expected window sizes"),
    ({"hierarchy": "2,,3"}, "expected window sizes"),
    ({"hierarchy": "sentences"}, "expected window sizes"),
    ({"window": -1}, "window is -1"),
    ({"tie": "block", "window": 3}, "a window needs tie=none"),
    ({"tie": "some"}, "tie is 'some'"),
    ({"sequences": 0}, "0 sequences"),
])
def test_options_that_no_cache_has(changes, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalCache(**{"heads": 2, "dim": 4, **changes})


def test_calls_that_do_not_fit_change_nothing():
    q, k, v = rows(10)
    cache = new_cache(q, k, v)
    append(cache, q, k, v)
    before = cache.to_bytes()
    for bad, message in [((q, k, v), "q has shape"), ((q[None], k[None, :5], v[None]), "10, 5 and 10 tokens"),
                         ((q[None].long(), k[None], v[None]), "floating point"), ((q[None, :, :1], k[None], v[None]), "expected"),
                         ((q[None], k[None], v[None, ..., :2]), "v has shape")]:
        with pytest.raises(ValueError, match=message):
            cache.append(*bad)
    with pytest.raises(ValueError, match="sequence 1; there are 1"):
        cache.append(q[None], k[None], v[None], sequence=1)
    with pytest.raises(ValueError, match="close\\(0\\)"):
        cache.close(0)
    with pytest.raises(ValueError, match="sequence 3; there are 1"):
        cache.reorder([0, 3])
    assert cache.to_bytes() == before


def test_half_precision_comes_back_as_it_came():
    q, k, v = (x.bfloat16() for x in rows(20))
    out = append(new_cache(q, k, v), q, k, v)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), append(new_cache(q, k, v), q.float(), k.float(), v.float()), rtol=1e-2, atol=1e-2)
