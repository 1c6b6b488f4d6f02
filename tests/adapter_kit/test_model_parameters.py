"""The parameters of a model, counted from its files: as many as the published model has, or the reason why not."""

from __future__ import annotations

import json

import pytest
from model_configs import PARAMETERS, PUBLISHED, QWEN2_7B, model_folder

from dlrl_adapter_kit.model_parameters import SizeNotKnown, parameters_of

UNKNOWN = {"model_type": "flux", "hidden_size": 64, "torch_dtype": "bfloat16"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_as_many_parameters_as_their_pages_say(name, tmp_path):
    assert parameters_of(model_folder(tmp_path, PUBLISHED[name])).total == PARAMETERS[name]


def test_a_critic_has_a_head_of_one_output(tmp_path):
    policy = parameters_of(model_folder(tmp_path, QWEN2_7B))
    assert policy.total - policy.as_value_model().total == (152064 - 1) * 3584


def test_an_adapter_has_a_row_and_a_column_of_each_rank_for_each_layer_it_is_added_to(tmp_path):
    model = parameters_of(model_folder(tmp_path, QWEN2_7B))

    assert model.of_adapter(8, ["q_proj", "v_proj"]) == 28 * 8 * (3584 + 3584 + 3584 + 512)
    with pytest.raises(SizeNotKnown, match="the model has no linear layer 'c_attn'"):
        model.of_adapter(8, ["c_attn"])


def test_a_name_of_the_hub_is_found_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    cached = tmp_path / "hub" / "models--Qwen--Qwen2.5-7B"
    model_folder(cached / "snapshots" / "d149729", QWEN2_7B)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("d149729")

    assert parameters_of("Qwen/Qwen2.5-7B").total == PARAMETERS["7B"]
    with pytest.raises(SizeNotKnown, match="'Qwen/Qwen2.5-32B' is no folder with a config.json here, nor in the cache"):
        parameters_of("Qwen/Qwen2.5-32B")


def test_an_unknown_architecture_is_as_large_as_its_index_says(tmp_path):
    folder = model_folder(tmp_path, UNKNOWN)
    with pytest.raises(SizeNotKnown, match="the layers of model_type 'flux' are not known"):
        parameters_of(folder)

    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 2_000_000}}))
    assert parameters_of(folder).total == 1_000_000


def test_an_unknown_architecture_in_one_file_is_as_large_as_the_shapes_in_its_header(tmp_path):
    folder = model_folder(tmp_path, UNKNOWN)
    tensors = {"a": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [0, 30]}, "__metadata__": {"format": "pt"}}
    header = json.dumps(tensors).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(30))

    assert parameters_of(folder).total == 15


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "can't be read"),
        ("[]", "is not a JSON object"),
        ('{"model_type": "llama", "vocab_size": 8}', "has no usable 'hidden_size'"),
    ],
)
def test_a_config_that_says_too_little_is_a_reason(content, reason, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SizeNotKnown, match=reason):
        parameters_of(str(tmp_path))


SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 24}


@pytest.mark.framework(needs="transformers")
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("mistral", {"head_dim": 16}),
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {}),
        ("qwen3", {"head_dim": 8, "attention_bias": True}),
        ("gemma", {}),
        ("gemma2", {"head_dim": 16}),
        ("gemma3_text", {}),
        ("phi3", {}),
        ("mixtral", {"num_local_experts": 4}),
        ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2}),
        ("qwen3_moe", {**EXPERTS, "mlp_only_layers": [1]}),
    ],
)
def test_each_family_has_as_many_parameters_as_transformers_makes(family, more, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **SMALL, **more)
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)

    assert parameters_of(str(tmp_path)).total == sum(one.numel() for one in model.parameters())
