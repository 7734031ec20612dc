// Package slot looks after what the relay needs on the server besides the stream: the replication slot, the publication and
// the tables in it. It works over ordinary SQL connections and never touches the replication connection.
//
// # Consent
//
// A slot is the only memory of what was delivered. One that has been used and is gone, or lost its WAL, is never created anew
// by itself: rows would be missing without a word. A missing slot is created only before the first session of a process, only
// if the configuration allows it, only for tables that never held a row, and the log says from where on rows are published.
//
// # Why the publication is watched
//
// A dropped publication, or a table that was dropped and created anew, takes rows out of the stream without an error on
// PostgreSQL 18, and with a late one before. So Monitor compares publication and tables every few seconds, and stops the relay.
package slot
