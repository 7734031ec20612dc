// Package security runs the built relay against what docs/THREAT-MODEL.md says it is safe from:
// secrets in what it prints, servers and brokers that lie, roles with fewer rights, and builds
// that cannot be repeated.
package security
