// Package monitor watches the slot, the publication and the server over one SQL connection, for as
// long as the process lives.
//
// A dropped publication, or a table that was dropped and recreated, takes rows out of the stream
// without an error on PostgreSQL 18, and with a late one before. So Monitor compares publication
// and tables every few seconds, and stops the relay.
//
//   - monitor.go      Monitor: connects, looks and listens in turns
//   - config.go       Config, the section [monitor]
//   - look.go         one look at slot and publication, and what it changes in the last Status
//   - publication.go  the publication, compared with the last look that found nothing wrong
//   - presence.go     how often the server has come back
//   - advanced.go     whether another relay can have moved the confirmed position
//
// What is observed:
//
//   - observation.go  Observation, and what it consists of
//   - observe.go      one observation of the server
//   - sql.go          the statement of an observation, and the rights that it takes
//   - answer.go       the server's answer to the statement
//   - blockers.go     what holds restart_lsn or catalog_xmin back
//   - metrics.go      the slot's series
//
// What follows from it, which is pure:
//
//   - rates.go        how fast positions move, and how those of the slot follow the end of the WAL
//   - pressure.go     what makes the slot keep more WAL from moment to moment
//   - checkpoint.go   the server's next checkpoints
//   - outlook.go      the checkpoint that costs the slot
//   - forecast.go     when the slot is lost, the disk is full, the reader has caught up
package monitor
