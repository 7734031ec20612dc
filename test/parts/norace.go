//go:build !race

package parts

// RaceDetector tells whether the tests, and so the binary, run with it: several times slower.
const RaceDetector = false
