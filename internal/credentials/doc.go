// Package credentials logs in to providers of short-lived tokens, for Kafka, PostgreSQL and schema
// registries alike. No error or log line of it contains a token or another secret.
//
//	token.go       Token, Source: the last token, renewed before it ends; the errors
//	oidc.go        tokens from an OpenID Connect or OAuth 2.0 token endpoint, or from a file
//	aws.go         signatures for Amazon MSK and RDS, by AWS's default credential chain
//	awsrequest.go  signed requests to other services of AWS
//	azure.go       tokens of Microsoft Entra
//	google.go      tokens of Google Cloud
package credentials
