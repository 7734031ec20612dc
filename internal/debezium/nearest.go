package debezium

import (
	"slices"
	"strings"
)

// mappedProperties are those that have code of their own.
var mappedProperties = []string{
	"connector.class", "name", "transforms", "predicates", "key.converter", "value.converter", "header.converter",
	"topic.prefix", "database.server.name", "database.hostname", "database.port", "database.user", "database.password", "database.dbname",
	"database.sslmode", "database.sslrootcert", "database.sslcert", "database.sslkey", "database.sslpassword",
	"slot.name", "plugin.name", "slot.drop.on.stop", "slot.failover", "publication.name", "publication.autocreate.mode", "publish.via.partition.root",
	"snapshot.mode", "heartbeat.interval.ms", "topic.heartbeat.prefix", "heartbeat.action.query", "table.include.list", "table.exclude.list",
	"schema.include.list", "schema.exclude.list", "column.include.list", "column.exclude.list", "message.prefix.include.list", "message.prefix.exclude.list",
	"decimal.handling.mode", "binary.handling.mode", "time.precision.mode", "interval.handling.mode", "hstore.handling.mode",
	"include.unknown.datatypes", "extended.headers.enabled", "unavailable.value.placeholder", "money.fraction.digits", "skipped.operations",
	override + "bootstrap.servers", override + "security.protocol", override + "compression.type", override + "client.id",
	override + "max.request.size", override + "linger.ms", override + "delivery.timeout.ms", override + "acks",
	"exactly.once.support", creation + "default.partitions", creation + "default.replication.factor",
}

// knownProperties lists the names that a name may have been meant to be.
func knownProperties(name string) []string {
	known := slices.Clone(mappedProperties)
	for n := range reasons {
		known = append(known, n)
	}
	for n := range judged {
		known = append(known, n)
	}
	for n := range producerReasons {
		known = append(known, override+n)
	}
	for n := range securityOptions {
		known = append(known, override+n)
	}
	if rest, found := strings.CutPrefix(name, "transforms."); found {
		alias, _, _ := strings.Cut(rest, ".")
		for _, o := range routerOptions {
			known = append(known, "transforms."+alias+"."+o.name)
		}
	}
	slices.Sort(known)
	return known
}

// nearest finds the known name that was probably meant, or nothing.
func nearest(name string, known []string) string {
	best, bestDistance := "", len(name)/4+1
	for _, k := range known {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
