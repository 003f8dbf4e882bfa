"""Tiny models of transformers: one graph each, loss and gradients of eager (the full list is in integration/)."""

import pytest
import torch

import fxstack_capture as fx

transformers = pytest.importorskip("transformers")

TEXT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))


def gpt2():
    config = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return transformers.GPT2LMHeadModel(config)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, max_position_embeddings=32))


@pytest.mark.parametrize("build", [bert, gpt2, llama], ids=lambda b: b.__name__)
def test_one_graph_and_eagers_gradients(build):
    torch.manual_seed(0)
    model = build().eval()
    tokens = torch.randint(0, 50, (2, 8))
    graphs = []
    compiled = fx.optimize(lambda g, _: graphs.append(g) or g.forward, fullgraph=True)(model)
    results = []
    for net in (model, compiled):
        model.zero_grad()
        loss = net(input_ids=tokens, labels=tokens).loss
        loss.backward()
        results.append((loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert len(graphs) == 1
    assert torch.allclose(results[0][0], results[1][0])
    assert len(results[0][1]) == len(results[1][1])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*(r[1] for r in results)))
