"""Flash attention's forward loops, from element loops to parts of the keys, one checked step after another.

docs/attention-from-loops.md tells what each step shows.
"""

import torch

import weft


def attention(s, v, o):
    """s: scores [queries, keys]; v: values [keys, width]; o: the output [queries, width], zeros at first."""
    queries, keys, width = *s.shape, v.shape[1]
    for i in range(queries):
        m = -3.0e38
        l = 0.0
        for j in range(keys):
            for d in range(width):
                m_new = max(m, s[i, j])
                l_new = l * torch.exp(m - m_new) + torch.exp(s[i, j] - m_new)
                o[i, d] = o[i, d] * (torch.exp(m - m_new) * l / l_new) + torch.exp(s[i, j] - m_new) / l_new * v[j, d]
            m_next = max(m, s[i, j])
            l = l * torch.exp(m - m_next) + torch.exp(s[i, j] - m_next)
            m = m_next


def forgetful(s, v, o):
    """The same without exp(m - m_new) before the output: what is in o stays relative to the old maximum."""
    queries, keys, width = *s.shape, v.shape[1]
    for i in range(queries):
        m = -3.0e38
        l = 0.0
        for j in range(keys):
            m_new = max(m, s[i, j])
            l_new = l * torch.exp(m - m_new) + torch.exp(s[i, j] - m_new)
            for d in range(width):
                o[i, d] = o[i, d] * (l / l_new) + torch.exp(s[i, j] - m_new) / l_new * v[j, d]
            m = m_new
            l = l_new


written = weft.schedule(attention)
hoisted = written.hoist("m_new", "d").hoist("l_new", "d")
proven = hoisted.parallel("i").parallel("d")
in_parts = proven.split("j", 64)


def main() -> None:
    torch.manual_seed(0)
    s, v = torch.randn(64, 200), torch.randn(200, 32)
    exact = torch.softmax(s.double(), dim=1) @ v.double()
    for program in (written, hoisted, in_parts):
        o = torch.zeros(64, 32)
        program.kernel()(s, v, o)
        print(f"after {len(program.steps)} steps: largest difference to softmax(s) @ v {float((o - exact).abs().max()):.1e}")
    print(in_parts)
    print(weft.analyze(forgetful).loops["j"].why)


if __name__ == "__main__":
    main()
