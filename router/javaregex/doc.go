// Package javaregex runs Java regular expressions and replacements, for Debezium's routing
// options.
//
//   - pattern.go compiles, matches and replaces;
//   - replacement.go parses replacement texts;
//   - translate.go rewrites a pattern for Go's engine or the backtracking one, group.go its groups
//     and flags;
//   - class.go reads bracketed classes, escape.go escapes, family.go the names of \p{...};
//   - case.go follows Java's rules for letters of both cases;
//   - runeset.go is a set of characters.
package javaregex
