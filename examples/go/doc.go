// Package examples places an order and writes its event in one transaction, once with each of the
// ways in which Go programs use PostgreSQL. It is a module of its own, so that nothing that uses
// postrider depends on these libraries.
//
//	order.go        the order, and its event
//	pgx.go          pgx
//	pgxbatch.go     pgx, with the event in the round trip of another statement
//	databasesql.go  database/sql, with any driver
//	sqlx.go         sqlx
//	gorm.go         GORM
//	bun.go          Bun
//	ent.go          ent
package examples
