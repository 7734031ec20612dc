// Package handover holds postrider slot advance to the offsets that Debezium itself stores: what they cover was published, and
// what they do not cover was not.
package handover
