package store

import "fmt"

// FenceStep is the number of tokens and of ids in one epoch.
const FenceStep = 1 << 32

// MaxEpoch is the last epoch whose tokens and ids all fit in 63 bits.
const MaxEpoch = 1<<31 - 1

// A FenceRequest asks for a new epoch.
type FenceRequest struct {
	EndLeases bool // ends the leases in force as well

	// Epoch is the smallest value that the new epoch may have, if one more than the current epoch is not enough. If you
	// restore the same backup a second time, set it to the epoch that Fence returned the first time, plus one.
	Epoch int64
}

// Check returns an [*InvalidError] if the request breaks a limit.
func (r FenceRequest) Check() error {
	if r.Epoch < 0 || r.Epoch > MaxEpoch {
		return refuse("epoch", fmt.Sprintf("must be 0 to %d", MaxEpoch))
	}
	return nil
}

// Raised returns the epoch that follows the given one in a store whose latest id is lastID. If the ids are in the second
// half of an epoch, it leaves out one epoch: so lost ids lie below the new epoch too, as long as they are fewer than 2³¹.
func (r FenceRequest) Raised(epoch, lastID int64) (int64, error) {
	next := max(epoch+1, r.Epoch, lastID/FenceStep+lastID%FenceStep/(FenceStep/2)+1)
	if next > MaxEpoch {
		return 0, refuse("epoch", fmt.Sprintf("is %d already, and can be %d at most: no more can be raised", epoch, MaxEpoch))
	}
	return next, nil
}

// NextToken returns the token of a job after a change that raises it in the epoch.
func NextToken(token, epoch int64) int64 { return max(token, Floor(epoch)) + 1 }

// Floor returns the last token and the last id below the epoch.
func Floor(epoch int64) int64 { return epoch * FenceStep }
