"""From pairs of near-duplicates to groups that stay in one split, or to receipts that are dropped.

Plain Python: every step depends on those before. It takes some 1,600 bytes for each pair.
"""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

NearDuplicatesPolicy = Literal["group", "drop", "off"]
NEW = -1  # split of a receipt that gets one yet
MAX_UNITED = 100  # receipts, and groups of the user, that may become one group

Key = tuple[int, int]  # hash of an id
PairKeys = tuple[Key, Key]
HashArray = npt.NDArray[np.uint64]
_NONE: Mapping[Any, Any] = MappingProxyType({})


class PairedReceipt(NamedTuple):
    """One receipt of a pair, in the order in which one of two is kept: old ones, then by key.

    Attributes:
      is_new: whether it is among the inputs, and not in the dataset that is appended to.
      key: hash of its id.
      group: hash of its group; 0 for none.
      split: position of its split; NEW for a new one.
      id: its id.
    """

    is_new: bool
    key: Key
    group: int
    split: int
    id: str


class NearPair(NamedTuple):
    """Two receipts that are one purchase; the first is the one that is kept.

    Attributes:
      first, second: the receipts; the second is new.
      shared: distinct numbers that both have.
      misread: numbers that differ.
      more: distinct numbers that only one of them has.
      bits: bits in which the hashes of their images differ; -1 where numbers decide.
      sure: whether one may be dropped: their numbers are equal, and enough.
    """

    first: PairedReceipt
    second: PairedReceipt
    shared: int
    misread: int = 0
    more: int = 0
    bits: int = -1
    sure: bool = False

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Self:
        """Makes a pair of what `json.dumps` makes of one."""
        first, second, *evidence = values
        receipts = [
            PairedReceipt(is_new=is_new, key=(key[0], key[1]), group=group, split=split, id=id_)
            for is_new, key, group, split, id_ in (first, second)
        ]
        return cls(receipts[0], receipts[1], *evidence)

    @property
    def keys(self) -> PairKeys:
        """Keys of both receipts."""
        return self.first.key, self.second.key


Dropped = Mapping[PairedReceipt, PairedReceipt]  # to the receipt that is kept for it


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """Decisions about pairs; arrays of uint64.

    Attributes:
      groups: [n, 3], two words of the key of a new receipt, and the hash of its group; ascending.
      merged: [n, 2], hash of a group of the user, and that of the group to which it belongs now.
      splits: [n, 2], hash of a group, and the split in which the dataset has a receipt of it.
      refused: [n, 4], keys of the two receipts of a pair that stays apart.
    """

    groups: HashArray
    merged: HashArray
    splits: HashArray
    refused: HashArray

    @classmethod
    def of(
        cls,
        *,
        groups: Mapping[Key, int] = _NONE,
        merged: Mapping[int, int] = _NONE,
        splits: Mapping[int, int] = _NONE,
        refused: Iterable[PairKeys] = (),
    ) -> Self:
        """Makes the arrays."""
        return cls(
            groups=_array(((*key, group) for key, group in groups.items()), 3),
            merged=_array(merged.items(), 2),
            splits=_array(splits.items(), 2),
            refused=_array(((*first, *second) for first, second in refused), 4),
        )

    def to_bytes(self) -> bytes:
        """Contents of a staging file."""
        buffer = io.BytesIO()
        np.savez(buffer, **vars(self))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(**arrays)


def drop_repeats(pairs: Iterable[NearPair]) -> Dropped:
    """Chooses the receipts that are dropped: all but one of those whose numbers are surely equal.

    Receipts with equal numbers are so to each other, also where not all of them were compared. The
    one that is kept comes first: an old one, if there is any.

    Returns:
      Each receipt that is dropped to the one that is kept for it.
    """
    first_of: dict[PairedReceipt, PairedReceipt] = {}

    def find_first(receipt: PairedReceipt) -> PairedReceipt:
        while receipt in first_of:
            receipt = first_of[receipt]
        return receipt

    for pair in sorted(pairs):
        if pair.sure:
            first, second = sorted(map(find_first, (pair.first, pair.second)))
            if first != second:
                first_of[second] = first
    return {receipt: find_first(receipt) for receipt in first_of if receipt.is_new}


def pair_of_kept(pair: NearPair, dropped: Dropped) -> NearPair | None:
    """Returns a pair of the receipts that are kept for those of a pair; None if nothing is left."""
    first, second = sorted(dropped.get(receipt, receipt) for receipt in (pair.first, pair.second))
    if first == second or not second.is_new:
        return None
    return pair._replace(first=first, second=second)


def unite(pairs: Iterable[NearPair], split_of_groups: Mapping[int, int]) -> Decisions:
    """Unites the receipts of pairs, and their groups, to groups that stay in one split.

    The surest pairs come first, and a pair is refused if its group would unite more than 100
    receipts and groups, or would have receipts in two splits already. So no chain of pairs can
    swallow a common layout.

    Args:
      pairs: the pairs.
      split_of_groups: hash of a group that the dataset has to the position of its split.
    """
    united = _United(split_of_groups)
    refused = [
        pair.keys
        for pair in sorted(pairs, key=_least_sure_last)
        if not united.join(pair.first, pair.second)
    ]
    return united.decisions(refused)


def _least_sure_last(pair: NearPair) -> tuple[Any, ...]:
    return pair.misread + pair.more, -pair.shared, pair.bits, pair


# A receipt without a group, or all receipts of a group.
Node = tuple[Literal["receipt"], Key] | tuple[Literal["group"], int]


class _United:
    """A forest of nodes (union-find, Tarjan 1975): the nodes of a tree become one group."""

    def __init__(self, split_of_groups: Mapping[int, int]) -> None:
        self._split_of_groups = split_of_groups
        self._parent: dict[Node, Node] = {}
        self._size: dict[Node, int] = {}
        self._split: dict[Node, int] = {}

    def join(self, first: PairedReceipt, second: PairedReceipt) -> bool:
        """Joins the trees of two receipts, unless that makes an impossible group."""
        a, b = self._root(self._add(first)), self._root(self._add(second))
        if a == b:
            return True
        splits = {self._split[a], self._split[b]} - {NEW}
        if self._size[a] + self._size[b] > MAX_UNITED or len(splits) > 1:
            return False
        if self._size[a] < self._size[b]:
            a, b = b, a
        self._parent[b] = a
        self._size[a] += self._size[b]
        self._split[a] = max(self._split[a], self._split[b])
        return True

    def decisions(self, refused: Iterable[PairKeys]) -> Decisions:
        """Names the groups that were made."""
        trees: dict[Node, list[Node]] = {}
        for node in self._parent:
            trees.setdefault(self._root(node), []).append(node)
        groups: dict[Key, int] = {}
        merged: dict[int, int] = {}
        splits: dict[int, int] = {}
        for root, nodes in trees.items():
            if len(nodes) == 1:
                continue  # of a refused pair, or within one group of the user
            keys = sorted(node[1] for node in nodes if node[0] == "receipt")
            own = sorted(node[1] for node in nodes if node[0] == "group")
            group = own[0] if own else _group_of(keys[0])
            groups |= dict.fromkeys(keys, group)
            merged |= dict.fromkeys(own[1:], group)
            if self._split[root] != NEW:
                splits[group] = self._split[root]
        return Decisions.of(groups=groups, merged=merged, splits=splits, refused=refused)

    def _add(self, receipt: PairedReceipt) -> Node:
        node: Node = ("group", receipt.group) if receipt.group else ("receipt", receipt.key)
        if node not in self._parent:
            known = self._split_of_groups.get(receipt.group, NEW) if receipt.group else NEW
            self._parent[node] = node
            self._size[node] = 1
            self._split[node] = known if receipt.is_new else receipt.split
        return node

    def _root(self, node: Node) -> Node:
        while self._parent[node] != node:
            # Each node on the way is hung up one step higher, so that ways stay short.
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node


def _group_of(key: Key) -> int:
    """Hash of a group that has no name: that of its first receipt."""
    data = b"near-duplicates" + b"".join(word.to_bytes(8, "little") for word in key)
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little") or 1


def _array(rows: Iterable[tuple[int, ...]], columns: int) -> HashArray:
    return np.array(sorted(rows), np.uint64).reshape(-1, columns)
