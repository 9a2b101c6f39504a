package etcd

import (
	"bytes"
	"math/big"
	"sync"

	"github.com/seed-ed332417/jq/kv"
)

// etcd counts all keys of a range for each answer, also if only the first ones are asked for. So where a range has many more keys than its limit, a view
// asks for a part of it with a near end, and for the rest if that was too little. The near end is a guess: as far behind the keys of the latest
// answer as these were apart.
type guesses struct {
	mu   sync.Mutex
	seen map[string]seen // by what all keys of the range have in common
}

// A seen is what the latest answer to a range has shown. Both numbers are of keys without what they have in common.
type seen struct{ last, gap *big.Int }

const (
	digits    = 16   // so many bytes of a key are its number
	mostSeen  = 1000 // ranges to remember
	nearSteps = 3    // guesses for one answer, each of a part eight times as long as before
)

// common returns what all keys of a range have in common. If that is nothing, it is the first byte, as for the range of all keys that begin with it.
func common(r kv.Range) []byte {
	n := 0
	for n < min(len(r.From), len(r.To)) && r.From[n] == r.To[n] {
		n++
	}
	return r.From[:max(n, min(1, len(r.From)))]
}

func number(key []byte) *big.Int {
	var raw [digits]byte
	copy(raw[:], key)
	return new(big.Int).SetBytes(raw[:])
}

// near returns a key of the rest of a range that probably lies behind as many items as the limit allows, or the end of the range.
func (g *guesses) near(whole, r kv.Range, step int) []byte {
	if r.To == nil || r.Limit == 0 || step == nearSteps {
		return r.To
	}
	shared := common(whole)
	g.mu.Lock()
	s, known := g.seen[string(shared)]
	g.mu.Unlock()
	if !known {
		return r.To
	}
	end := number(r.From[len(shared):])
	if end.Cmp(s.last) < 0 {
		end.Set(s.last)
	}
	width := new(big.Int).Mul(s.gap, big.NewInt(int64(r.Limit)))
	end.Add(end, width.Lsh(width, uint(1+3*step)))
	if end.BitLen() > 8*digits {
		return r.To
	}
	key := append(bytes.Clone(shared), end.FillBytes(make([]byte, digits))...)
	if bytes.Compare(key, r.From) <= 0 || bytes.Compare(key, r.To) >= 0 {
		return r.To
	}
	return key
}

// learn remembers the whole answer to a range. One with fewer items than the limit allows was short, and needs no guess the next time.
func (g *guesses) learn(r kv.Range, answer []kv.Item) {
	if r.To == nil || r.Limit == 0 {
		return
	}
	shared := common(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	before, known := g.seen[string(shared)]
	if len(answer) < r.Limit {
		delete(g.seen, string(shared))
		return
	}
	s := seen{last: number(answer[len(answer)-1].Key[len(shared):]), gap: new(big.Int)}
	s.gap.Sub(s.last, number(answer[0].Key[len(shared):]))
	s.gap.Div(s.gap, big.NewInt(int64(len(answer))))
	if s.gap.Sign() == 0 && known {
		s.gap.Set(before.gap)
		if d := new(big.Int).Sub(s.last, before.last); d.Sign() > 0 {
			s.gap = d
		}
	}
	if s.gap.Sign() <= 0 {
		s.gap.SetInt64(1)
	}
	if g.seen == nil || len(g.seen) >= mostSeen {
		g.seen = map[string]seen{}
	}
	g.seen[string(shared)] = s
}
