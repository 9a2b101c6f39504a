package store

import "fmt"

// FenceStep is how many tokens and ids belong to one epoch.
const FenceStep = 1 << 32

// MaxEpoch is the last epoch whose tokens and ids are all within 63 bits.
const MaxEpoch = 1<<31 - 1

// A FenceRequest asks for a new epoch.
type FenceRequest struct {
	EndLeases bool // ends the leases in force as well

	// Epoch is the least that the new epoch may be, where one more than the present one is not enough. Who restores the same
	// backup a second time needs it: the epoch that the first time has returned, plus one.
	Epoch int64
}

// Check says what is wrong with the request, as an [*InvalidError].
func (r FenceRequest) Check() error {
	if r.Epoch < 0 || r.Epoch > MaxEpoch {
		return refuse("epoch", fmt.Sprintf("must be 0 to %d", MaxEpoch))
	}
	return nil
}

// Raised is the epoch that follows the present one of a store whose latest id is given. Where ids come near to the end of an
// epoch, one is left out: the lost ones, as long as they are fewer than 2³¹, lie below the new one too.
func (r FenceRequest) Raised(epoch, lastID int64) (int64, error) {
	next := max(epoch+1, r.Epoch, lastID/FenceStep+lastID%FenceStep/(FenceStep/2)+1)
	if next > MaxEpoch {
		return 0, refuse("epoch", fmt.Sprintf("is %d already, and can be %d at most: no more can be raised", epoch, MaxEpoch))
	}
	return next, nil
}

// NextToken is the token of a job after a change that raises it, in the epoch.
func NextToken(token, epoch int64) int64 { return max(token, Floor(epoch)) + 1 }

// Floor is the last token, and the last id, below the epoch.
func Floor(epoch int64) int64 { return epoch * FenceStep }
