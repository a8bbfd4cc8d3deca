"""Examples → token ids and labels; loss only on what the model should answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from jobs.examples import Example, Instruction, Passage

IGNORED = -100  # the label that torch's cross entropy passes over

# the prompt of Stanford Alpaca, for base models that have no chat template
_ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."

Tokens = dict[str, list[int]]


class Encoded(Dataset[Tokens]):
    """Encodes each example when it is asked for, so that training starts at once however long the data set is."""

    def __init__(self, rows: Sequence[Example], tokenizer: Any, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._rows: Sequence[Example | list[int]] = rows
        if isinstance(rows[0], Passage):
            self._rows = self._blocks([row for row in rows if isinstance(row, Passage)])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Tokens:
        row = self._rows[index]
        if isinstance(row, Instruction):
            return self._instruction(row)
        assert isinstance(row, list)
        return {"input_ids": row, "labels": row}

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _instruction(self, row: Instruction) -> Tokens:
        before, answer = self._turns(row) if self._tokenizer.chat_template else self._plain(row)
        prompt, response = self._ids(before), self._ids(answer)
        # too long: the prompt loses its beginning, but never more than down to half, then the answer its end
        room = max(self._max_length - len(response), self._max_length // 2)
        prompt = prompt[-room:]
        response = response[: self._max_length - len(prompt)]
        return {"input_ids": prompt + response, "labels": [IGNORED] * len(prompt) + response}

    def _turns(self, row: Instruction) -> tuple[str, str]:
        """Prompt and answer in the model's own chat template, the end-of-turn mark with the answer."""
        turns = [{"role": "user", "content": row.question}, {"role": "assistant", "content": row.output}]
        apply = self._tokenizer.apply_chat_template
        before: str = apply(turns[:1], tokenize=False, add_generation_prompt=True)
        whole: str = apply(turns, tokenize=False)
        if whole.startswith(before):
            return before, whole[len(before) :]
        return before, row.output + (self._tokenizer.eos_token or "")

    def _plain(self, row: Instruction) -> tuple[str, str]:
        given = f"\n\n### Input:\n{row.input}" if row.input else ""
        start = self._tokenizer.bos_token or ""
        before = f"{start}{_ALPACA}\n\n### Instruction:\n{row.instruction}{given}\n\n### Response:\n"
        return before, row.output + (self._tokenizer.eos_token or "")

    def _blocks(self, passages: Sequence[Passage]) -> list[list[int]]:
        """All text behind one another, cut into blocks of `max_length` tokens; a single last token is left out."""
        flow: list[int] = []
        end = self._tokenizer.eos_token or "\n"
        for passage in passages:
            flow += self._ids(passage.text + end)
        blocks = [flow[at : at + self._max_length] for at in range(0, len(flow), self._max_length)]
        return [block for block in blocks if len(block) > 1]


class Padding:
    """Examples of one micro-batch → tensors of shape (examples, longest example), padded on the right."""

    def __init__(self, pad_id: int) -> None:
        self._pad_id = pad_id

    def __call__(self, rows: Sequence[Tokens]) -> dict[str, torch.Tensor]:
        width = max(len(row["input_ids"]) for row in rows)
        ids = torch.full((len(rows), width), self._pad_id)
        labels = torch.full((len(rows), width), IGNORED)
        attention = torch.zeros((len(rows), width), dtype=torch.long)
        for at, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[at, :length] = torch.tensor(row["input_ids"])
            labels[at, :length] = torch.tensor(row["labels"])
            attention[at, :length] = 1
        return {"input_ids": ids, "attention_mask": attention, "labels": labels}
