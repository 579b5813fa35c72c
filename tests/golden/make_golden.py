#!/usr/bin/env python3
"""Makes the golden files of the Llama family: what PyTorch and transformers say, in float64, about tiny models.

    python make_golden.py [case ...]      makes all cases, or the named ones, beside this script
    python make_golden.py --check         reloads what is there and recomputes what the files say about themselves

README.md says what each file holds. The rules behind it:

- transformers keeps three places in float32 whatever the model's dtype: the RMS norm, the softmax of eager attention
  and the rotary tables. For the float64 runs they are replaced (float64() and rotary() below), else "float64" would
  mean 1e-7. The bf16 runs use transformers as it is; inv_freq stays float32, as it does in a model loaded in bf16.
- inv_freq is the float32 that transformers computes; the angle, its sine and cosine are float64. With positions below
  64 an implementation that rounds the angle to float32 is off by at most 2e-6 rad.
- `dynamic` rope is computed once, from the context length, by transformers' own formula for that length.
- labels[i] is already the next token of position i, so the loss is taken from the logits here; the shift inside
  transformers is not used. Loss = sum of the valid tokens' nll over their number in the whole batch.
- Random numbers come from numpy's RandomState, whose streams are frozen. One thread, so sums keep their order.
"""
import copy, json, math, os, platform, sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 10
ADAMW = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_norm=1.0)
SGD = dict(lr=0.1, momentum=0.9)

# Legend: D hidden, F intermediate, H heads, G kv heads, K head_dim, L layers, C context, theta rope_theta.
# `weights` names the case whose model.safetensors is used; `seed` is for tokens, and for weights where it has its own.
SMALL = dict(V=61, D=32, F=24, L=2, C=24, rows=2, eps=1e-5, theta=10000.0, max_pos=64)
GROUPED = dict(SMALL, H=2, G=1)         # head_dim 16: eight frequencies, so that a scaling's ramps are seen
CASES = {
    "base": dict(SMALL, H=4, G=4, seed=1, bf16=True, sgd=True),
    "gqa": dict(SMALL, H=8, G=2, K=8, theta=500000.0, eps=1e-6, seed=2, bf16=True),
    "tied": dict(GROUPED, tied=True, seed=3, dtype=torch.bfloat16),
    "rope_linear": dict(GROUPED, tied=True, seed=4, weights="tied", max_pos=16,
                        rope=dict(rope_type="linear", factor=2.5)),
    "rope_dynamic": dict(GROUPED, tied=True, seed=5, weights="tied", max_pos=16,
                         rope=dict(rope_type="dynamic", factor=2.0)),
    "rope_llama3": dict(GROUPED, tied=True, seed=6, weights="tied", max_pos=512,
                        rope=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=64)),
    "rope_yarn": dict(GROUPED, tied=True, seed=7, weights="tied", max_pos=256,
                      rope=dict(rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0,
                                original_max_position_embeddings=64)),
    "attention_bias": dict(GROUPED, attention_bias=True, eps=1e-3, seed=8, dtype=torch.bfloat16),
    "mlp_bias": dict(GROUPED, mlp_bias=True, seed=9, dtype=torch.bfloat16),
    "mistral": dict(SMALL, H=8, G=2, K=8, window=8, seed=10, weights="gqa"),
    "packed": dict(SMALL, H=4, G=4, seed=11, weights="base", docs=[[5, 11, 8], [23, 1]]),
    # Four layers fall so fast at the common rate that the steps would magnify float32's rounding to 6e-6.
    "bf16": dict(V=61, D=128, F=48, L=4, H=4, G=1, K=16, C=64, rows=2, eps=1e-5, theta=10000.0, max_pos=64,
                 seed=12, dtype=torch.bfloat16, bf16=True, some_grads=True, lr=1e-3),
}

# Rope tables without a model: head_dim, max_position_embeddings, context length, parameters.
TABLES = {
    "default_128": (128, 8192, 8192, dict(rope_type="default", rope_theta=500000.0)),
    "default_64_theta_1e6": (64, 32768, 4096, dict(rope_type="default", rope_theta=1000000.0)),
    "linear_128": (128, 16384, 16384, dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    "dynamic_128_longer": (128, 4096, 16384, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    "dynamic_128_shorter": (128, 4096, 2048, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    "llama3_128": (128, 131072, 8192, dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                           high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "llama3_64": (64, 131072, 8192, dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "yarn_128": (128, 131072, 8192, dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0,
                                         original_max_position_embeddings=32768)),
    "yarn_64_not_truncated": (64, 131072, 8192, dict(rope_type="yarn", rope_theta=150000.0, factor=32.0,
                                                     beta_fast=32.0, beta_slow=1.0, truncate=False,
                                                     original_max_position_embeddings=4096)),
    "yarn_64_mscale": (64, 163840, 8192, dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, mscale=1.0,
                                              mscale_all_dim=0.707, beta_fast=32.0, beta_slow=1.0,
                                              original_max_position_embeddings=4096)),
    "yarn_64_attention_factor": (64, 16384, 8192, dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                       attention_factor=1.25,
                                                       original_max_position_embeddings=4096)),
}


# ---- float64 ------------------------------------------------------------------------------------------------------

def rms_norm_64(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def attention_64(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    groups = module.num_key_value_groups
    key = key.repeat_interleave(groups, dim=1)
    value = value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    p = torch.softmax(scores, dim=-1)
    return (p @ value).transpose(1, 2).contiguous(), p


def rotary(self, x, position_ids):
    """Tables in float64 for a float64 model; else float32 rounded to the model's dtype, as transformers has it."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    angle = position_ids[..., None].to(wide) * self.inv_freq_used.to(wide)
    angle = torch.cat((angle, angle), dim=-1)
    return (angle.cos() * self.attention_scaling).to(x.dtype), (angle.sin() * self.attention_scaling).to(x.dtype)


class float64:
    """While inside, the places where transformers computes in float32 compute in float64."""

    def __enter__(self):
        self.saved = []
        for module, norm in ((modeling_llama, "LlamaRMSNorm"), (modeling_mistral, "MistralRMSNorm")):
            cls = getattr(module, norm)
            self.saved += [(cls, "forward", cls.forward),
                           (module, "eager_attention_forward", module.eager_attention_forward)]
            cls.forward = rms_norm_64
            module.eager_attention_forward = attention_64

    def __exit__(self, *_):
        for owner, name, value in self.saved:
            setattr(owner, name, value)


class as_it_is:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


# ---- rope ---------------------------------------------------------------------------------------------------------

def rope_of(config, context):
    """inv_freq (float32 as transformers computes it) and the factor on sine and cosine, for a context length."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        inv_freq, scaling = modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv_freq, scaling = ROPE_INIT_FUNCTIONS[kind](config, seq_len=context)
    return inv_freq.float(), float(scaling)


def inv_freq_64(head_dim, max_pos, context, p):
    """The same formulas in float64, written out: what the float32 of transformers is held against."""
    kind, base = p["rope_type"], p["rope_theta"]
    if kind == "dynamic":
        length = max(context, max_pos)
        base *= (p["factor"] * length / max_pos - (p["factor"] - 1)) ** (head_dim / (head_dim - 2))
    out = []
    for i in range(head_dim // 2):
        f = base ** (-2 * i / head_dim)
        if kind == "linear":
            f /= p["factor"]
        elif kind == "llama3":
            turns = p["original_max_position_embeddings"] * f / (2 * math.pi)
            low, high = p["low_freq_factor"], p["high_freq_factor"]
            smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
            f = (1 - smooth) * f / p["factor"] + smooth * f
        elif kind == "yarn":
            def dim_of(turns):
                return (head_dim * math.log(p["original_max_position_embeddings"] / (turns * 2 * math.pi))
                        / (2 * math.log(base)))
            low, high = dim_of(p.get("beta_fast", 32)), dim_of(p.get("beta_slow", 1))
            if p.get("truncate", True):
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, head_dim - 1)
            if low == high:
                high += 0.001
            ramp = min(max((i - low) / (high - low), 0.0), 1.0)
            f = f * (1 - ramp) + f / p["factor"] * ramp
        out.append(f)
    return out


def rope_json(config, context):
    inv_freq, scaling = rope_of(config, context)
    exact = inv_freq_64(config.head_dim, config.max_position_embeddings, context, config.rope_parameters)
    return dict(head_dim=config.head_dim, max_position_embeddings=config.max_position_embeddings, seq_len=context,
                parameters=dict(config.rope_parameters), attention_scaling=scaling,
                inv_freq=[float(x) for x in inv_freq],
                inv_freq_max_rel_diff=max(abs(float(a) / b - 1) for a, b in zip(inv_freq, exact)))


# ---- models -------------------------------------------------------------------------------------------------------

def config_of(c):
    common = dict(vocab_size=c["V"], hidden_size=c["D"], intermediate_size=c["F"], num_hidden_layers=c["L"],
                  num_attention_heads=c["H"], num_key_value_heads=c["G"], head_dim=c.get("K"),
                  max_position_embeddings=c["max_pos"], rms_norm_eps=c["eps"],
                  tie_word_embeddings=c.get("tied", False), use_cache=False, bos_token_id=None, eos_token_id=None,
                  rope_parameters=dict(dict(rope_type="default"), rope_theta=c["theta"], **c.get("rope", {})))
    if "window" in c:
        config = MistralConfig(**common, sliding_window=c["window"])
        config.architectures = ["MistralForCausalLM"]
    else:
        config = LlamaConfig(**common, attention_bias=c.get("attention_bias", False), mlp_bias=c.get("mlp_bias", False))
        config.architectures = ["LlamaForCausalLM"]
    config._attn_implementation = "eager"
    return config


def older_config(text, alias):
    """The same config.json as transformers wrote it before 5.0: rope_theta and rope_scaling at the top level."""
    old = json.loads(text)
    rope = old.pop("rope_parameters")
    old["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    old["rope_scaling"] = None if kind == "default" else {"type" if alias else "rope_type": kind, **rope}
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.50.0"
    return json.dumps(dict(sorted(old.items())), indent=2) + "\n"


def model_of(c, weights, dtype):
    config = config_of(c)
    model = (MistralForCausalLM if "window" in c else LlamaForCausalLM)(config)
    if c.get("tied"):
        weights = dict(weights, **{"lm_head.weight": weights["model.embed_tokens.weight"]})
    model.load_state_dict(weights, strict=True)
    model = model.to(dtype).eval()
    table = model.model.rotary_emb
    table.inv_freq_used, table.attention_scaling = rope_of(config, c["C"])
    type(table).forward = rotary
    return model


def weights_of(c):
    """Deviations that keep activations near one and logits well away from uniform; nothing is left at 0 or 1."""
    rng = np.random.RandomState(c["seed"])
    config = config_of(c)
    weights = {}
    for name, p in LlamaForCausalLM(config).named_parameters():
        z = rng.standard_normal(tuple(p.shape))
        if name.endswith("norm.weight"):
            w = 1 + 0.2 * z
        elif name.endswith("bias"):
            w = 0.3 * z
        elif name == "model.embed_tokens.weight" and not c.get("tied"):
            w = z
        elif name in ("lm_head.weight", "model.embed_tokens.weight"):
            w = 1.5 * z / math.sqrt(p.shape[1])
        else:
            w = z / math.sqrt(p.shape[1])
        weights[name] = torch.from_numpy(w).to(c.get("dtype", torch.float32)).contiguous()
    return weights


def batch_of(c):
    """Tokens of a noisy walk, their successors as labels, holes of different number per row, and the documents."""
    rng = np.random.RandomState(1000 + c["seed"])
    ids = np.zeros((c["rows"], c["C"]), np.int32)
    labels = np.zeros_like(ids)
    positions = np.zeros_like(ids)
    docs = c.get("docs", [[c["C"]]] * c["rows"])
    for r, lengths in enumerate(docs):
        at = 0
        for n in lengths:
            walk = [int(rng.randint(c["V"]))]
            for _ in range(n):
                walk.append((walk[-1] * 7 + 3) % c["V"] if rng.rand() < 0.5 else int(rng.randint(c["V"])))
            ids[r, at:at + n], labels[r, at:at + n] = walk[:-1], walk[1:]
            positions[r, at:at + n] = np.arange(n)
            at += n
        assert at == c["C"]
        holes = rng.permutation(c["C"])[:2 + 5 * r]
        labels[r, holes] = -100
    return ids, labels, positions, docs


# ---- what is measured ---------------------------------------------------------------------------------------------

def logits_of(model, ids, docs):
    """[rows*ctx, vocab]; each document is run alone, so no attention crosses a border and positions restart at 0."""
    ids = torch.from_numpy(ids).long()
    if all(len(d) == 1 for d in docs):
        return model(input_ids=ids, use_cache=False).logits.flatten(0, 1)
    parts = []
    for r, lengths in enumerate(docs):
        at = 0
        for n in lengths:
            parts.append(model(input_ids=ids[r:r + 1, at:at + n], use_cache=False).logits[0])
            at += n
    return torch.cat(parts)


def loss_of(logits, labels):
    """(nll per token, 0 where masked; loss). bf16 logits are widened to float32 first, as transformers does."""
    labels = torch.from_numpy(labels).long().flatten()
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    nll = F.cross_entropy(logits, labels, ignore_index=-100, reduction="none")
    return nll, nll.sum() / (labels != -100).sum()


def evaluate(c, weights, dtype, batch):
    ids, labels, _, docs = batch
    with float64() if dtype == torch.float64 else as_it_is():
        model = model_of(c, weights, dtype)
        logits = logits_of(model, ids, docs)
        nll, loss = loss_of(logits, labels)
        loss.backward()
    grads = {n: p.grad.double() for n, p in model.named_parameters()}
    return dict(logits=logits.detach().double(), nll=nll.detach().double(), loss=float(loss.detach().double()),
                grads=grads)


def train(c, weights, dtype, batch, kind):
    """Losses before the first step and after each of STEPS steps, always on the same batch."""
    ids, labels, _, docs = batch
    with float64() if dtype == torch.float64 else as_it_is():
        model = model_of(c, weights, dtype)
        params = list(model.parameters())
        if kind == "adamw":
            groups = [dict(params=[p for p in params if p.ndim >= 2], weight_decay=ADAMW["weight_decay"]),
                      dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)]
            opt = torch.optim.AdamW(groups, lr=c.get("lr", ADAMW["lr"]), betas=(ADAMW["beta1"], ADAMW["beta2"]),
                                    eps=ADAMW["eps"], foreach=False)
        else:
            opt = torch.optim.SGD(params, lr=SGD["lr"], momentum=SGD["momentum"], foreach=False)
        losses, norms = [], []
        for step in range(STEPS + 1):
            opt.zero_grad()
            _, loss = loss_of(logits_of(model, ids, docs), labels)
            losses.append(float(loss.detach()))
            if step == STEPS:
                break
            loss.backward()
            if kind == "adamw":
                norms.append(float(torch.nn.utils.clip_grad_norm_(params, ADAMW["max_norm"], foreach=False)))
            opt.step()
    return losses, norms


def rel(a, b):
    return float((a - b).norm() / b.norm())


def errors(got, want):
    flat = {k: torch.cat([g.flatten() for g in x["grads"].values()]) for k, x in (("got", got), ("want", want))}
    return dict(logits_rel_err=rel(got["logits"], want["logits"]), nll_rel_err=rel(got["nll"], want["nll"]),
                loss_rel_err=abs(got["loss"] / want["loss"] - 1), all_grads_rel_err=rel(flat["got"], flat["want"]),
                grads_rel_err={n: rel(g, want["grads"][n]) for n, g in got["grads"].items()})


def check_rotary(c):
    """transformers' own forward, left alone, makes the float32 tables that rotary() makes. Where it recomputes them
    from the length (`dynamic`), it holds the base in a float32 tensor, hence the tolerance."""
    config = config_of(c)
    table = modeling_llama.LlamaRotaryEmbedding(config)
    x, at = torch.zeros(1), torch.arange(c["C"])[None]
    theirs = ORIGINAL_ROTARY(table, x, at)
    table.inv_freq_used, table.attention_scaling = rope_of(config, c["C"])
    for a, b in zip(theirs, rotary(table, x, at)):
        assert float((a - b).abs().max()) < 1e-5


ORIGINAL_ROTARY = modeling_llama.LlamaRotaryEmbedding.forward


def write_json(path, value):
    """Compact, one line per top-level key. Python writes the shortest digits that read back to the same double."""
    lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in value.items()]
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def versions():
    return dict(torch=torch.__version__, transformers=transformers.__version__, numpy=np.__version__,
                python=platform.python_version(), cpu=torch.backends.cpu.get_cpu_capability())


def make(name):
    c = CASES[name]
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    source = c.get("weights", name)
    config = config_of(c)
    config.dtype = c.get("dtype", CASES[source].get("dtype", torch.float32))
    text = config.to_json_string()
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(text)
    with open(os.path.join(folder, "config_v4.json"), "w") as f:
        f.write(older_config(text, alias=name in ("rope_linear", "rope_dynamic")))
    if source == name:
        save_file(weights_of(c), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    weights = {n: w.float() for n, w in load_file(os.path.join(HERE, source, "model.safetensors")).items()}

    batch = batch_of(c)
    ids, labels, positions, docs = batch
    check_rotary(c)
    want = evaluate(c, weights, torch.float64, batch)
    grads = want["grads"]
    kept = grads
    if c.get("some_grads"):
        kept = {n: g for n, g in grads.items() if g.ndim == 1 or n == "model.layers.0.self_attn.k_proj.weight"}
    width = max(len(d) for d in docs)
    lengths = np.array([d + [0] * (width - len(d)) for d in docs], np.int32)
    tensors = {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels),
               "positions": torch.from_numpy(positions), "sequence_lengths": torch.from_numpy(lengths),
               "logits": want["logits"].float(), "nll": want["nll"]}
    tensors.update({"grad." + n: g.float().contiguous() for n, g in kept.items()})
    save_file(tensors, os.path.join(folder, "expect.safetensors"))

    losses, norms = train(c, weights, torch.float64, batch, "adamw")
    assert losses[0] == want["loss"]
    expect = dict(case=name, weights=f"../{source}/model.safetensors", rows=c["rows"], ctx=c["C"], vocab=c["V"],
                  valid_tokens=[int((row != -100).sum()) for row in labels], loss=want["loss"],
                  grad_norm=math.sqrt(sum(float(g.pow(2).sum()) for g in grads.values())),
                  grad_norms={n: float(g.norm()) for n, g in grads.items()},
                  adamw=dict(ADAMW, lr=c.get("lr", ADAMW["lr"]), losses=losses, grad_norms=norms))
    if c.get("sgd"):
        expect["sgd"] = dict(SGD, losses=train(c, weights, torch.float64, batch, "sgd")[0])
    if c.get("bf16"):
        rounded = {n: w.bfloat16().float() for n, w in weights.items()}
        got = evaluate(c, rounded, torch.bfloat16, batch)
        expect["bf16"] = dict(loss=got["loss"], against_given_weights=errors(got, want),
                              against_rounded_weights=errors(got, evaluate(c, rounded, torch.float64, batch)))
    expect["rope"] = rope_json(config_of(c), c["C"])
    expect["versions"] = versions()
    write_json(os.path.join(folder, "expect.json"), expect)

    # How far plain float32 strays from these numbers: the room a float32 implementation has under its tolerances.
    narrow = evaluate(c, weights, torch.float32, batch)
    e = errors(narrow, want)
    run = train(c, weights, torch.float32, batch, "adamw")[0]
    print(f"{name:15s} loss {losses[0]:.4f} -> {losses[-1]:.4f}  float32: logits {e['logits_rel_err']:.1e} "
          f"loss {e['loss_rel_err']:.1e} worst grad {max(e['grads_rel_err'].values()):.1e} "
          f"steps {max(abs(a / b - 1) for a, b in zip(run, losses)):.1e}  "
          f"inv_freq {expect['rope']['inv_freq_max_rel_diff']:.1e}")
    if c.get("bf16"):
        for k in ("against_given_weights", "against_rounded_weights"):
            e = expect["bf16"][k]
            print(f"    bf16 {k}: logits {e['logits_rel_err']:.2e} nll {e['nll_rel_err']:.2e} "
                  f"loss {e['loss_rel_err']:.2e} grads {e['all_grads_rel_err']:.2e}")


def make_tables():
    out = {}
    for name, (head_dim, max_pos, context, rope) in TABLES.items():
        config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                             max_position_embeddings=max_pos, rope_parameters=dict(rope))
        out[name] = rope_json(config, context)
        assert out[name]["inv_freq_max_rel_diff"] < 2e-6, name
    write_json(os.path.join(HERE, "rope_tables.json"), dict(tables=out, versions=versions()))
    for name in TABLES:
        print(f"{name:26s} scaling {out[name]['attention_scaling']:.6f} "
              f"float32 against float64 {out[name]['inv_freq_max_rel_diff']:.1e}")


# ---- reading back -------------------------------------------------------------------------------------------------

def check(name):
    """Everything that follows from the files alone, and that both spellings of the config mean the same model."""
    folder = os.path.join(HERE, name)
    expect = json.load(open(os.path.join(folder, "expect.json")))
    t = load_file(os.path.join(folder, "expect.safetensors"))
    with safe_open(os.path.join(folder, expect["weights"]), "pt") as f:
        names = set(f.keys())
    assert names == set(expect["grad_norms"])
    ids, expected_labels, positions, docs = batch_of(CASES[name])
    for key, value in (("input_ids", ids), ("labels", expected_labels), ("positions", positions)):
        assert torch.equal(t[key], torch.from_numpy(value)), key
    assert [[n for n in row if n != 0] for row in t["sequence_lengths"].tolist()] == docs, "sequence_lengths"
    labels = t["labels"].long().flatten()
    z = t["logits"].double()
    nll = torch.logsumexp(z, 1) - z.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    nll[labels == -100] = 0
    assert rel(nll, t["nll"]) < 2e-7, "nll against logits"
    assert abs(float(t["nll"].sum()) / sum(expect["valid_tokens"]) / expect["loss"] - 1) < 1e-14, "loss against nll"
    assert abs(math.sqrt(sum(n * n for n in expect["grad_norms"].values())) / expect["grad_norm"] - 1) < 1e-14
    for n, norm in expect["grad_norms"].items():
        if "grad." + n in t:
            assert abs(float(t["grad." + n].double().norm()) / norm - 1) < 2e-7, n
    assert abs(expect["adamw"]["grad_norms"][0] / expect["grad_norm"] - 1) < 1e-14
    new = json.load(open(os.path.join(folder, "config.json")))
    old = json.load(open(os.path.join(folder, "config_v4.json")))
    cls = MistralConfig if new["model_type"] == "mistral" else LlamaConfig
    a, b = rope_of(cls(**copy.deepcopy(new)), expect["ctx"]), rope_of(cls(**copy.deepcopy(old)), expect["ctx"])
    assert torch.equal(a[0], b[0]) and a[1] == b[1] == expect["rope"]["attention_scaling"]
    assert [float(x) for x in a[0]] == expect["rope"]["inv_freq"]


def check_tables():
    tables = json.load(open(os.path.join(HERE, "rope_tables.json")))["tables"]
    assert list(tables) == list(TABLES)
    for name, t in tables.items():
        exact = inv_freq_64(t["head_dim"], t["max_position_embeddings"], t["seq_len"], t["parameters"])
        assert all(abs(a / b - 1) < 1e-6 for a, b in zip(t["inv_freq"], exact)), name


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    args = sys.argv[1:]
    if args != ["--check"]:
        unknown = [a for a in args if a not in CASES]
        if unknown:
            sys.exit(f"no such case: {' '.join(unknown)}; there are {' '.join(CASES)}")
        for name in args or CASES:
            make(name)
        if not args:
            make_tables()
    for name in CASES:
        check(name)
    check_tables()
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, files in os.walk(HERE) for f in files)
    print(f"checked {len(CASES)} cases, {size} bytes in all")


if __name__ == "__main__":
    main()
