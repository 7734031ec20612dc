// Package monitor watches the slot, the publication and the server over one SQL connection, for as
// long as the process lives.
//
// When a publication is dropped, or a table is dropped and recreated, rows are missing from the
// stream. PostgreSQL 18 reports no error, older versions report one late. So Monitor compares
// publication and tables every few seconds, and ends the session if rows may be missing.
//
// A look reads slot and publication, each slot.Config.CheckInterval. An observation reads the
// whole server, each monitor.interval, as part of a look.
//
//   - monitor.go      Monitor: connects, then looks and listens in turns
//   - config.go       Config, the section [monitor]
//   - look.go         one look at slot and publication, which updates the Status
//   - publication.go  the publication, compared with the last look that found nothing wrong
//   - presence.go     counts the returns of the server
//   - advanced.go     whether another relay can have moved the confirmed position
//
// The observation:
//
//   - observation.go  Observation and its parts
//   - observe.go      one observation of the server
//   - sql.go          the statement of an observation, and the rights that it needs
//   - answer.go       the server's answer to the statement
//   - blockers.go     what holds restart_lsn, catalog_xmin or VACUUM back
//   - archive.go      what waits for the archiver
//   - metrics.go      the slot's series
//
// Pure functions of observations:
//
//   - rates.go        how fast positions move, and how those of the slot follow the end of the WAL
//   - standstill.go   for how long what else keeps WAL has not moved
//   - pressure.go     why the slot keeps more and more WAL
//   - checkpoint.go   the server's next checkpoints
//   - outlook.go      the checkpoint that invalidates the slot
//   - pace.go         what a limit of the relay's rate means for the WAL
//   - forecast.go     when the slot is lost, and when the reader has caught up
//   - diskfull.go     when pg_wal fills its volume
package monitor
