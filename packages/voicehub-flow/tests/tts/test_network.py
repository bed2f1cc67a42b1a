"""The network: names and sizes of published checkpoints, layouts of the text, masks, guidance."""

from __future__ import annotations

import pytest
import torch

from voicehub_flow.config import F5Architecture, SynthesisSettings
from voicehub_flow.tts.conformance import ARCHITECTURE
from voicehub_flow.tts.network import DiT
from voicehub_flow.tts.network.blocks import ConvPositions
from voicehub_flow.tts.network.positions import rotate, rotations
from voicehub_flow.tts.network.text import GlobalResponseNorm, lay_out
from voicehub_flow.tts.speaking import speak_frames

CHANNELS, SYMBOLS = 5, 6


def network(**changes):
    """A network of which no weight is zero, in float64."""
    sizes = F5Architecture.model_validate({**ARCHITECTURE, **changes})
    torch.manual_seed(3)
    module = DiT(sizes, channels=CHANNELS, symbols=SYMBOLS, speakers=2).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def inputs(frames=(7, 4), tokens=(3, 2)):
    generator = torch.Generator().manual_seed(5)
    batch, longest = len(frames), max(frames)
    ids = torch.randint(1, SYMBOLS + 1, (batch, max(tokens)), generator=generator)
    for row, count in enumerate(tokens):
        ids[row, count:] = 0
    shape = (batch, longest, CHANNELS)
    return {
        "noisy": torch.randn(shape, generator=generator, dtype=torch.float64),
        "context": torch.randn(shape, generator=generator, dtype=torch.float64),
        "time": torch.rand(batch, generator=generator, dtype=torch.float64),
        "ids": ids,
        "text_lengths": torch.tensor(tokens),
        "frame_lengths": torch.tensor(frames),
        "drop_audio": torch.zeros(batch, dtype=torch.bool),
        "drop_text": torch.zeros(batch, dtype=torch.bool),
        "speakers": torch.tensor([1, 2][:batch]),
    }


def test_names_and_sizes_are_those_of_the_published_model():
    with torch.device("meta"):
        module = DiT(F5Architecture(), channels=100, symbols=2545)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert shapes["text_embed.text_embed.weight"] == (2546, 512)
    assert shapes["text_embed.text_blocks.3.grn.gamma"] == (1, 1, 1024)
    assert shapes["text_embed.text_blocks.0.dwconv.weight"] == (512, 1, 7)
    assert shapes["input_embed.proj.weight"] == (1024, 712)
    assert shapes["input_embed.conv_pos_embed.conv1d.2.weight"] == (1024, 64, 31)
    assert shapes["transformer_blocks.21.attn_norm.linear.weight"] == (6144, 1024)
    assert shapes["transformer_blocks.0.attn.to_out.0.bias"] == (1024,)
    assert shapes["transformer_blocks.0.ff.ff.0.0.weight"] == (2048, 1024)
    assert shapes["transformer_blocks.0.ff.ff.2.weight"] == (1024, 2048)
    assert shapes["time_embed.time_mlp.0.weight"] == (1024, 256)
    assert shapes["norm_out.linear.weight"] == (2048, 1024)
    assert shapes["proj_out.weight"] == (100, 1024)
    # What its authors call 335.8 million.
    assert sum(tensor.numel() for tensor in module.parameters()) == pytest.approx(336e6, rel=5e-3)


#: Velocities of frames 0, 4 and 8 by the published implementation (package f5-tts 1.1.22), with
#: weights and inputs of ``sines``: (masked text padding, rotary heads, dropped) to 12 numbers.
PUBLISHED = {
    (True, None, False): "1.9631 0.8918 -0.1584 1.5178 1.6656 0.9863 0.1577 1.2885 2.2342 0.9661 "
    "-1.6659 -0.0069",
    (True, None, True): "2.2475 0.7176 -0.2309 1.379 1.8676 1.4609 -0.0228 1.5155 2.2898 0.6226 "
    "-1.1816 0.1289",
    (False, 1, False): "1.9661 0.9038 -0.1839 1.4858 1.9916 0.296 0.2738 1.4102 2.3632 0.7864 "
    "-1.6428 0.0036",
    (False, 1, True): "2.2258 0.7653 -0.2868 1.3478 2.3022 0.6298 -0.0282 1.6029 2.3887 0.4398 "
    "-1.1444 0.1395",
}


def sines(shape, phase, scale):
    count = torch.Size(shape).numel()
    angles = 1.7 * torch.arange(count, dtype=torch.float64) ** 1.1 + phase
    return (scale * torch.sin(angles)).reshape(shape)


@pytest.mark.parametrize("variant", sorted(PUBLISHED, key=str), ids=str)
def test_it_computes_what_the_published_implementation_computes(variant):
    masked, rotary_heads, dropped = variant
    sizes = {"dim": 32, "depth": 2, "heads": 2, "text_dim": 8, "conv_layers": 1}
    sizes |= {"mask_text_padding": masked, "rotary_heads": rotary_heads}
    module = DiT(F5Architecture(**sizes), channels=4, symbols=5).double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(sines(parameter.shape, len(name), 0.2))
        found = module(
            sines((1, 9, 4), 1, 1.0),
            sines((1, 9, 4), 2, 1.0),
            torch.tensor([0.3], dtype=torch.float64),
            torch.tensor([[0, 3, 1, 4]]) + 1,
            torch.tensor([4]),
            torch.tensor([9]),
            drop_audio=torch.tensor([dropped]),
            drop_text=torch.tensor([dropped]),
        )
    expected = torch.tensor([float(number) for number in PUBLISHED[variant].split()])
    torch.testing.assert_close(found[0, [0, 4, 8]].flatten().float(), expected, rtol=0, atol=2e-4)


def test_a_new_network_predicts_nothing():
    module = DiT(F5Architecture.model_validate(ARCHITECTURE), channels=CHANNELS, symbols=SYMBOLS)
    single = {k: v.float() if v.is_floating_point() else v for k, v in inputs().items()}
    assert not bool(module(**{**single, "speakers": None}).any())


@pytest.mark.parametrize("layout", ["front", "spread"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("rotary_heads", [None, 1])
def test_an_item_does_not_see_its_batch_mates(layout, masked, rotary_heads):
    module = network(text_layout=layout, mask_text_padding=masked, rotary_heads=rotary_heads)
    given = inputs()
    together = module(**given)
    for row, (frames, tokens) in enumerate(zip((7, 4), (3, 2), strict=True)):
        alone = {key: value[row : row + 1] for key, value in given.items()}
        alone["noisy"], alone["context"] = (alone[k][:, :frames] for k in ("noisy", "context"))
        alone["ids"] = alone["ids"][:, :tokens]
        torch.testing.assert_close(module(**alone)[0], together[row, :frames], rtol=0, atol=1e-10)


def test_dropped_conditions_are_not_seen():
    module, given = network(), inputs()
    yes = torch.ones(2, dtype=torch.bool)
    dropped = {**given, "drop_audio": yes, "drop_text": yes}
    other = {**dropped, "context": given["context"] + 1, "speakers": torch.tensor([2, 1])}
    other["ids"] = torch.where(given["ids"] > 0, 1 + given["ids"] % SYMBOLS, given["ids"])
    assert torch.equal(module(**dropped), module(**other))
    for name in ("context", "ids", "speakers"):
        changed = module(**{**given, name: other[name]})
        assert not torch.allclose(changed, module(**given)), name


def test_tokens_stand_in_front_or_are_spread():
    ids = torch.tensor([[4, 5, 6], [7, 8, 0]])
    tokens, frames = torch.tensor([3, 2]), torch.tensor([6, 4])
    front, absent = lay_out(ids, tokens, frames, 6, "front")
    assert front.tolist() == [[4, 5, 6, 0, 0, 0], [7, 8, 0, 0, 0, 0]]
    assert absent.tolist() == [[False] * 3 + [True] * 3, [False] * 2 + [True] * 4]
    spread, absent = lay_out(ids, tokens, frames, 6, "spread")
    assert spread.tolist() == [[4, 4, 5, 5, 6, 6], [7, 7, 8, 8, 0, 0]]
    assert absent.tolist() == [[False] * 6, [False] * 4 + [True] * 2]


def test_rotations_keep_lengths_and_tell_distances():
    values = torch.randn(2, 9, 8, dtype=torch.float64)
    turned = rotate(values, rotations(9, 8, values))
    torch.testing.assert_close(turned.norm(dim=-1), values.norm(dim=-1))
    constant = torch.randn(8, dtype=torch.float64).expand(9, 8)
    scores = rotate(constant, rotations(9, 8, values))
    products = scores @ scores.T
    for distance in range(9):
        diagonal = torch.diagonal(products, distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_the_response_norm_is_its_formula():
    norm = GlobalResponseNorm(4).double()
    torch.nn.init.normal_(norm.gamma)
    torch.nn.init.normal_(norm.beta)
    values = torch.randn(1, 6, 4, dtype=torch.float64)
    root = values.square().sum(1, keepdim=True).sqrt()
    expected = norm.gamma * values * root / (root.mean(-1, keepdim=True) + 1e-6)
    padding = torch.zeros(1, 6, 1, dtype=torch.bool)
    torch.testing.assert_close(norm(values, padding), expected + norm.beta + values)


def test_convolved_positions_stay_out_of_the_padding():
    conv = ConvPositions(4, 3, 2).double()
    values, padding = torch.randn(1, 5, 4).double(), torch.tensor([0, 0, 0, 1, 1]).bool()
    made = conv(values, padding[None, :, None])
    assert not bool(made[:, 3:].any())


# -- speaking ---------------------------------------------------------------------------------


def speak(module, **changes):
    settings = {"steps": 3, "guidance_scale": 1.0, "sway": 0.0}
    more = {key: changes.pop(key) for key in ("speaker", "context", "seed") if key in changes}
    chosen = SynthesisSettings(**{**settings, **changes})
    with torch.no_grad():
        return speak_frames(module, [1, 2, 3], 6, chosen, **{"speaker": 1, **more})


def test_guidance_one_is_the_conditional_model_and_zero_the_null_one():
    module = network()
    plain, null, both = (speak(module, guidance_scale=g) for g in (1.0, 0.0, 2.0))
    assert plain.shape == (6, CHANNELS) and plain.dtype == torch.float32
    assert not torch.allclose(plain, null) and not torch.allclose(plain, both)
    assert torch.equal(null, speak(module, guidance_scale=0.0, speaker=2))
    # Close to 1 it comes close to the conditional one: the halves are not exchanged.
    torch.testing.assert_close(
        speak(module, guidance_scale=1.0 + 1e-7), plain, rtol=1e-3, atol=1e-4
    )


def test_seeds_decide_and_context_is_heard():
    module = network()
    assert torch.equal(speak(module, seed=1), speak(module, seed=1))
    assert not torch.allclose(speak(module, seed=1), speak(module, seed=2))
    context = torch.randn(4, CHANNELS)
    after = speak(module, context=context)
    assert after.shape == (6, CHANNELS)
    assert not torch.allclose(after, speak(module, context=context + 1))
