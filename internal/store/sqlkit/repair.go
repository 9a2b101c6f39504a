package sqlkit

// Repaired is what a part of a repair has looked at: jobs up to the last id, unless there were no more.
type Repaired struct {
	Moved int
	Last  int64
	More  bool
}

// Repair repairs part by part, each behind the last id of the one before, and returns how many jobs were moved. A part may be begun
// anew from the same place.
func Repair(part func(after int64) (Repaired, error)) (moved int, err error) {
	for p := (Repaired{More: true}); p.More; {
		if p, err = part(p.Last); err != nil {
			return moved, err
		}
		moved += p.Moved
	}
	return moved, nil
}
