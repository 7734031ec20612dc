package slot

// The least periods of the waits.
const (
	FreeInterval     = freeInterval
	UnlockedInterval = unlockedInterval
)
