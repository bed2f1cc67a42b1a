"""The network: topology, gates at zero, null conditions, alignment, decay."""

from __future__ import annotations

import pytest
import torch

from voicehub.cli.compose import compose_preset
from voicehub.cli.validate import validate_run
from voicehub.optim.groups import decays, undecayed
from voicehub_flow.multimodal.conformance import ARCHITECTURE, SHAPES
from voicehub_flow.multimodal.network import MultimodalTransformer
from voicehub_flow.multimodal.positions import rotate, rotations
from voicehub_flow.store.config import MultimodalArchitecture
from voicehub_flow.store.shapes import FeatureShapes

#: Heads, blocks, blocks over latents alone, latent frames and channels, and the millions of
#: parameters that the authors state for the network.
PUBLISHED = {
    "small-16k": (7, 12, 8, 250, 20, 157),
    "small-44k": (7, 12, 8, 345, 40, 157),
    "medium-44k": (14, 12, 8, 345, 40, 621),
    "large-44k": (14, 21, 14, 345, 40, 1030),
}


@pytest.fixture
def network():
    """Random weights everywhere, float64."""
    torch.manual_seed(5)
    made = MultimodalTransformer(MultimodalArchitecture(**ARCHITECTURE), SHAPES).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def features(count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator, dtype=torch.float64)

    here = torch.zeros(count, dtype=torch.bool)
    return {
        "text": draw(SHAPES.text_tokens, SHAPES.text_dim),
        "clip": draw(SHAPES.clip_frames, SHAPES.clip_dim),
        "sync": draw(SHAPES.sync_frames, SHAPES.sync_dim),
        "no_text": here,
        "no_clip": here,
        "no_sync": here,
    }


def latents(count: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (count, SHAPES.latent_frames, SHAPES.latent_dim)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_before_training_gates_are_closed_and_the_velocity_is_zero():
    network = MultimodalTransformer(MultimodalArchitecture(**ARCHITECTURE), SHAPES)
    for name, parameter in network.named_parameters():
        closed = ".modulation." in name or name.startswith("final.out")
        if closed or name in ("null_clip", "null_sync", "sync_place.weight"):
            assert not parameter.any(), name
    given = {key: v.float() if v.is_floating_point() else v for key, v in features(2).items()}
    moving = latents(2).float().requires_grad_()
    velocity = network(moving, torch.rand(2), network.conditions(given))
    assert not velocity.any()
    # Behind the final layer the stream is what went in: no block changes it.
    stream = network.latent_in(moving)
    whole = torch.zeros(2, 1, network.sizes.width)
    turned = rotations(stream.shape[1], 8, 1.0, stream)
    for block in network.fused:
        assert torch.equal(block(stream, whole, turned, None), stream)


def test_null_conditions_stand_in_whatever_the_features_hold(network):
    given, other = features(2, 1), features(2, 2)
    absent = torch.ones(2, dtype=torch.bool)
    flags = {"no_text": absent, "no_clip": absent, "no_sync": absent}
    moving, time = latents(2), torch.tensor([0.3, 0.8], dtype=torch.float64)
    one = network(moving, time, network.conditions({**given, **flags}))
    two = network(moving, time, network.conditions({**other, **flags}))
    assert torch.equal(one, two)
    for name in ("text", "clip", "sync"):
        changed = network(moving, time, network.conditions({**given, name: other[name]}))
        plain = network(moving, time, network.conditions(given))
        assert not torch.allclose(changed, plain), name
    explicit = {
        **given,
        **flags,
        "no_clip": ~absent,
        "clip": network.null_clip.expand(2, SHAPES.clip_frames, -1),
    }
    torch.testing.assert_close(network(moving, time, network.conditions(explicit)), one)


def test_every_latent_frame_sees_the_synchronisation_feature_of_its_own_time():
    network = MultimodalTransformer(
        MultimodalArchitecture(**ARCHITECTURE),
        FeatureShapes(**{**SHAPES.to_dict(), "latent_frames": 48, "sync_frames": 32}),
    )
    frames = network._sync_of(torch.zeros(1, 48, 3), 32)
    assert frames.tolist() == [int((number + 0.5) * 32 / 48) for number in range(48)]
    # A shorter clip has the same rate: its frames see what they would see in a whole one.
    assert network._sync_of(torch.zeros(1, 30, 3), 32).tolist() == frames[:30].tolist()
    assert network._sync_of(torch.zeros(1, 60, 3), 32).tolist()[-1] == 31


def test_rotations_make_attention_depend_on_distance_alone():
    turned = rotations(20, 8, 1.5, torch.zeros(1, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)
    queries, keys = (rotate(each.expand(1, 1, 20, 8), turned) for each in (query, key))
    scores = (queries @ keys.transpose(-1, -2))[0, 0]
    for distance in (-3, 0, 5):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(scores.diagonal(1)[:1], scores.diagonal(5)[:1])
    torch.testing.assert_close(queries.norm(dim=-1), query.norm(dim=-1).expand(1, 1, 20))


def test_norms_biases_and_null_embeddings_do_not_decay():
    network = MultimodalTransformer(MultimodalArchitecture(**ARCHITECTURE), SHAPES)
    exempt = undecayed([network])
    free = {name for name, p in network.named_parameters() if not decays(name, p, exempt)}
    assert {"null_clip", "null_sync", "sync_place.weight"} <= free
    assert {n for n, _ in network.named_parameters() if n.endswith("bias") or "norm" in n} <= free
    assert not {name for name in free if name.endswith("linear.weight")}
    fixed = {name for name, _ in network.named_buffers()}
    assert fixed == {"null_text", "latent_mean", "latent_std"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_topology(name):
    heads, depth, fused, frames, channels, millions = PUBLISHED[name]
    _, config = validate_run(compose_preset(f"flow/v2a-{name}", ["data.train=store"]))
    sizes = config.model.architecture
    assert (sizes.num_heads, sizes.depth, sizes.fused_depth) == (heads, depth, fused)
    assert sizes.width == 64 * heads
    shapes = FeatureShapes(**{k: getattr(sizes, k) for k in FeatureShapes.__dataclass_fields__})
    assert shapes == FeatureShapes(frames, channels, 64, 1024, 192, 768, 77, 1024)
    with torch.device("meta"):
        network = MultimodalTransformer(sizes, shapes)
    assert len(network.joint) == depth - fused and len(network.fused) == fused
    count = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    assert abs(count - millions) < 0.01 * millions
    training = config.training
    assert config.data.global_batch_size == 512
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.95, 1e-6)
    assert (training.learning_rate, training.weight_decay) == (1e-4, 1e-6)
    assert (training.warmup_steps, training.max_grad_norm) == (1000, 1.0)
    assert training.bf16 and training.lr_scheduler_type == "multistep"
    assert config.model.null_condition_probability == 0.1
    assert config.model.generation.guidance_scale == 4.5
