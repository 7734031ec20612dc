//go:build race

package parts

// RaceDetector reports whether the tests run with it, several times slower.
const RaceDetector = true
