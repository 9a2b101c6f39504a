package sqlkit

// Repaired is the result of one part of a repair: it has looked at the jobs up to the id Last, and More says that there are
// jobs behind it.
type Repaired struct {
	Moved int
	Last  int64
	More  bool
}

// Repair runs the parts of a repair one after another, each behind the last id of the one before, and returns how many jobs
// were moved. A part may be repeated from the same id.
func Repair(part func(after int64) (Repaired, error)) (moved int, err error) {
	for p := (Repaired{More: true}); p.More; {
		if p, err = part(p.Last); err != nil {
			return moved, err
		}
		moved += p.Moved
	}
	return moved, nil
}
