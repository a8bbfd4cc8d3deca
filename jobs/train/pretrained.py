"""Model folders to start from without a download: real weights out of a GGUF file, or small random ones.

`python -m jobs.train.pretrained --gguf FILE --out FOLDER` · `--random --out FOLDER`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from jobs.failure import JobError
from jobs.train.publish import replace, settle

_QUESTIONS = ("What is the capital of France?", "What is 2+2?", "Name three colours.")
_ANSWER_TOKENS = 24
_MARKS = ("<|begin|>", "<|end|>", "<|pad|>")


def from_gguf(file: Path, out: Path) -> None:
    """Weights of a GGUF file as an ordinary transformers folder in bf16.

    Raises JobError when the folder, loaded again, does not answer as the file does.
    """
    if not file.is_file():
        raise JobError(f"{file} is not a file", "Give the .gguf file.")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    source = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
    config = source.config
    # save_pretrained refuses what it takes for a quantised model, though the weights are plain by now
    del config.quantization_config
    plain = type(source)(config).to(torch.bfloat16)
    plain.load_state_dict(source.state_dict())
    staging = _stage(plain, tokenizer, out)
    _compare(source, tokenizer, staging)
    replace(staging, out)


def random(out: Path, hidden: int = 64, layers: int = 2, seed: int = 0) -> None:
    """A small Llama with random weights and a tokenizer of single bytes. It knows nothing and says so in its name."""
    torch.manual_seed(seed)
    tokenizer = _bytes_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        name_or_path=f"random-llama-{hidden}x{layers}",
    )
    replace(_stage(LlamaForCausalLM(config), tokenizer, out), out)


def _bytes_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate([*alphabet, *_MARKS])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    begin, end, pad = _MARKS
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token=begin, eos_token=end, pad_token=pad)


def _stage(model: Any, tokenizer: Any, out: Path) -> Path:
    staging = out.parent / f".{out.name}.staging"
    out.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    settle(staging)
    return staging


def _compare(source: Any, tokenizer: Any, out: Path) -> None:
    again = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16)
    reloaded = AutoTokenizer.from_pretrained(out)
    for question in _QUESTIONS:
        prompt = _prompt(tokenizer, question)
        if not torch.equal(prompt, _prompt(reloaded, question)):
            raise JobError(f"the tokenizer changed on the way to {out}", "Report this with the GGUF file's name.")
        with torch.inference_mode():
            before, after = source(prompt).logits, again(prompt).logits
        if not torch.equal(before, after):
            worst = (before - after).abs().max().item()
            raise JobError(f"logits differ by up to {worst} after reloading {out}", "Do not use this folder.")
        first, second = _answer(source, tokenizer, prompt), _answer(again, reloaded, prompt)
        if first != second:
            raise JobError(f"answers differ: {first!r} and {second!r}", "Do not use this folder.")
        print(f"{question} -> {second.strip()!r} (same as the source)")


def _prompt(tokenizer: Any, question: str) -> torch.Tensor:
    turns = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    ids: torch.Tensor = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    return ids


def _answer(model: Any, tokenizer: Any, prompt: torch.Tensor) -> str:
    with torch.inference_mode():
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=_ANSWER_TOKENS, do_sample=False
        )
    return str(tokenizer.decode(made[0, prompt.shape[1] :], skip_special_tokens=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobs.train.pretrained", description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gguf", type=Path, metavar="FILE", help="take the weights of this GGUF file")
    source.add_argument("--random", action="store_true", help="make a small random Llama")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--hidden", type=int, default=64, help="width of the random model (default 64)")
    parser.add_argument("--layers", type=int, default=2, help="layers of the random model (default 2)")
    given = parser.parse_args()
    try:
        if given.random:
            random(given.out, given.hidden, given.layers)
        else:
            from_gguf(given.gguf, given.out)
    except JobError as wrong:
        sys.exit(f"error: {wrong}")


if __name__ == "__main__":
    main()
