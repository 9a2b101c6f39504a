package memkv

import (
	"bytes"
	"hash/fnv"
)

// A node is a treap that never changes: a tree that is sorted by key and, so that it is balanced, a heap by rank, which is a hash of the key. A change makes new nodes
// on the way from the root, and shares the others. A nil node is an empty tree.
type node struct {
	key, value  []byte
	version     uint64
	rank        uint64
	left, right *node
}

func (n *node) find(key []byte) *node {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n
		}
	}
	return nil
}

func (n *node) versionOr0() uint64 {
	if n == nil {
		return 0
	}
	return n.version
}

// walk calls see for the nodes from a key and below another one, in order, until it returns false. A nil key is no bound.
func (n *node) walk(from, to []byte, see func(*node) bool) bool {
	if n == nil {
		return true
	}
	reached := bytes.Compare(n.key, from) >= 0
	if reached && !n.left.walk(from, to, see) {
		return false
	}
	if to != nil && bytes.Compare(n.key, to) >= 0 {
		return true
	}
	if reached && !see(n) {
		return false
	}
	return n.right.walk(from, to, see)
}

// with returns the tree with a key, which replaces one that is there.
func (n *node) with(key, value []byte, version uint64) *node {
	below, above := n.without(key).split(key)
	one := &node{key: bytes.Clone(key), value: bytes.Clone(value), version: version, rank: rankOf(key)}
	return join(join(below, one), above)
}

// without returns the tree without the key.
func (n *node) without(key []byte) *node {
	if n == nil {
		return nil
	}
	c := bytes.Compare(key, n.key)
	if c == 0 {
		return join(n.left, n.right)
	}
	changed := *n
	if c < 0 {
		changed.left = n.left.without(key)
	} else {
		changed.right = n.right.without(key)
	}
	return &changed
}

// split returns the tree below the key, and that from it on.
func (n *node) split(key []byte) (below, above *node) {
	if n == nil {
		return nil, nil
	}
	changed := *n
	if bytes.Compare(n.key, key) < 0 {
		changed.right, above = n.right.split(key)
		return &changed, above
	}
	below, changed.left = n.left.split(key)
	return below, &changed
}

// join returns the tree of two, of which the first is below the second.
func join(below, above *node) *node {
	switch {
	case below == nil:
		return above
	case above == nil:
		return below
	case below.rank > above.rank:
		changed := *below
		changed.right = join(below.right, above)
		return &changed
	default:
		changed := *above
		changed.left = join(below, above.left)
		return &changed
	}
}

func rankOf(key []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(key)
	x := h.Sum64() // its upper bits differ little for keys that differ in their last byte
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}
