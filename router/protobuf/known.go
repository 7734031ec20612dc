package protobuf

import (
	"context"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	_ "google.golang.org/genproto/googleapis/type/calendarperiod" // and the others: google/type
	_ "google.golang.org/genproto/googleapis/type/color"
	_ "google.golang.org/genproto/googleapis/type/date"
	_ "google.golang.org/genproto/googleapis/type/datetime"
	_ "google.golang.org/genproto/googleapis/type/dayofweek"
	_ "google.golang.org/genproto/googleapis/type/decimal"
	_ "google.golang.org/genproto/googleapis/type/expr"
	_ "google.golang.org/genproto/googleapis/type/fraction"
	_ "google.golang.org/genproto/googleapis/type/interval"
	_ "google.golang.org/genproto/googleapis/type/latlng"
	_ "google.golang.org/genproto/googleapis/type/money"
	_ "google.golang.org/genproto/googleapis/type/month"
	_ "google.golang.org/genproto/googleapis/type/phone_number"
	_ "google.golang.org/genproto/googleapis/type/postaladdress"
	_ "google.golang.org/genproto/googleapis/type/quaternion"
	_ "google.golang.org/genproto/googleapis/type/timeofday"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// confluent are the files of Confluent's clients that values are made of.
var confluent = map[string]string{
	"confluent/meta.proto": `syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
	"confluent/type/decimal.proto": `syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}`,
	"confluent/type/variant.proto": `syntax = "proto3";
package confluent.type;
message Variant {
  bytes metadata = 1;
  bytes value = 2;
}`,
}

// known resolves the files that a schema imports without a reference: Confluent's clients have
// them.
func known(path string) (protocompile.SearchResult, error) {
	if text := confluent[path]; text != "" {
		return protocompile.SearchResult{Source: strings.NewReader(text)}, nil
	}
	if !strings.HasPrefix(path, "google/type/") {
		return protocompile.SearchResult{}, protoregistry.NotFound
	}
	file, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: file}, err
}

// path is the name that the compiler has for a schema's text. No import is of that name.
const path = "<schema>"

// compile links a file with what it imports: references by their names, and known files.
func compile(schema protocompile.SearchResult, references map[string]string) (linker.File, error) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(
		protocompile.CompositeResolver{
			protocompile.ResolverFunc(func(name string) (protocompile.SearchResult, error) {
				if name != path {
					return protocompile.SearchResult{}, protoregistry.NotFound
				}
				return schema, nil
			}),
			&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(references)},
			protocompile.ResolverFunc(known),
		})}
	linked, err := compiler.Compile(context.Background(), path)
	if err != nil {
		return nil, err
	}
	return linked[0], nil
}
