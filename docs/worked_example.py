"""Prints the numbers of the worked example in docs/algorithm.md, section 2.

    PYTHONPATH=python .venv/bin/python docs/worked_example.py
"""

import torch

import ramify

forest = ramify.Forest.from_nested([[["a", "b"], "c"]])
q = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64).reshape(3, 1, 1)
k = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64).reshape(3, 1, 1)
v = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).reshape(3, 1, 1)

scores = (q[:, 0] @ k[:, 0].T).fill_diagonal_(-torch.inf)
softmax = torch.softmax(scores, 1)
print("softmax\n  matrix", softmax.round(decimals=4).tolist())
for tie in ("block", "none"):
    matrix = ramify.attention_matrix(q, k, forest, scale=1.0, tie=tie).squeeze(1)
    out = ramify.attention(q, k, v, forest, scale=1.0, tie=tie).flatten()
    energy = ramify.energy(q, k, forest, scale=1.0, tie=tie).item()
    divergence = torch.special.xlogy(matrix, matrix / softmax).nansum().item()  # 0/0 on the diagonal counts nothing
    missing = torch.logsumexp(scores, 1).sum().item() - 3 * energy
    print(f"tie={tie}\n  matrix {matrix.round(decimals=4).tolist()}")
    print(f"  out    {out.round(decimals=4).tolist()}\n  energy {energy:.4f}")
    print(f"  KL to softmax {divergence:.4f}; sum of log-sum-exps minus 3 energies {missing:.4f}")
