# Shortcuts. Go alone is enough for build and test; .ci/run is what decides about a commit.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: build test lint vuln bench sbom

build: ## one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/postrider/postrider/internal/build.Version=$(VERSION)" -o postrider .

test:
	go test ./...

lint: ## needs golangci-lint v2
	gofmt -l . | (! grep .)
	go vet ./...
	golangci-lint run ./...

vuln: ## needs a connection to the vulnerability database
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

bench:
	go test -run '^$$' -bench . -benchmem ./...

sbom: build ## postrider.cdx.json: the modules of the binary, as CycloneDX; needs a connection to the checksum database
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0 bin -json -output postrider.cdx.json postrider
