package connect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

var (
	pointSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Point", Version: "1",
		doc: "Geometry (POINT)", Fields: []*Field{
			{"x", requiredDouble}, {"y", requiredDouble}, {"wkb", optionalBytes},
			{"srid", optionalInt32}}}
	geometrySchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Geometry",
		Version: "2", doc: "Geometry", Fields: []*Field{
			{"wkb", requiredBytes}, {"srid", optionalInt32},
			{"extensions", &Schema{Kind: KindMap, Optional: true, items: RequiredString}}}}
	lineSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Line", Version: "1",
		doc: "Geometry (LINE)", Fields: []*Field{
			{"a", requiredDouble}, {"b", requiredDouble}, {"c", requiredDouble}}}
	circleSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Circle",
		Version: "1", doc: "Geometry (CIRCLE)", Fields: []*Field{
			{"center", pointSchema}, {"radius", requiredDouble}}}
)

func geometryCodec(name string) codec {
	read := func(want int, value func(n []float64, b []byte) *Structure) func([]byte) (any,
		error) {
		return func(b []byte) (any, error) {
			n, err := numbers(b, want)
			if err != nil {
				return nil, err
			}
			return value(n, b), nil
		}
	}
	switch name {
	case "point":
		return codec{Schema: *pointSchema, Read: read(2,
			func(n []float64, _ []byte) *Structure { return pointValue(n[0], n[1]) })}
	case "circle":
		return codec{Schema: *circleSchema, Read: read(3, func(n []float64, _ []byte) *Structure {
			return &Structure{circleSchema, []any{pointValue(n[0], n[1]), n[2]}}
		})}
	case "line":
		return codec{Schema: *lineSchema, Read: read(3,
			func(n []float64, _ []byte) *Structure {
				return &Structure{lineSchema,
					[]any{n[0], n[1], n[2]}}
			})}
	case "box":
		return codec{Schema: *geometrySchema,
			Read: read(4, func(n []float64, _ []byte) *Structure {
				return geometryValue(wkbPolygon, []float64{n[0], n[1], n[0], n[3], n[2], n[3], n[2],
					n[1], n[0], n[1]}, "box", "")
			})}
	case "polygon":
		return codec{Schema: *geometrySchema,
			Read: read(-1, func(n []float64, _ []byte) *Structure {
				if last := len(n) - 2; last > 0 && (n[0] != n[last] || n[1] != n[last+1]) {
					n = append(n, n[0], n[1])
				}
				return geometryValue(wkbPolygon, n, "polygon", "")
			})}
	case "path":
		return codec{Schema: *geometrySchema,
			Read: read(-1, func(n []float64, b []byte) *Structure {
				return geometryValue(wkbLineString, n, "path", strconv.FormatBool(b[0] == '('))
			})}
	}
	return codec{Schema: *geometrySchema, Read: read(4,
		func(n []float64, _ []byte) *Structure {
			return geometryValue(wkbLineString, n, "lseg",
				"")
		})}
}

// Kinds of shapes in well-known binary.
const (
	wkbLineString = 2
	wkbPolygon    = 3
)

// geometryValue makes a shape of one ring or string of points, with what its kind is in
// PostgreSQL, and whether a path is closed.
func geometryValue(shape byte, coordinates []float64, kind, closed string) *Structure {
	wkb := []byte{1, shape, 0, 0, 0}
	if shape == wkbPolygon {
		wkb = binary.LittleEndian.AppendUint32(wkb, 1)
	}
	wkb = binary.LittleEndian.AppendUint32(wkb, uint32(len(coordinates)/2))
	for _, v := range coordinates {
		wkb = appendCoordinate(wkb, v)
	}
	extensions := mapping{{Text("type"), Text(kind)}}
	if closed != "" {
		extensions = append(extensions, entry{Text("closed"), Text(closed)})
	}
	return &Structure{geometrySchema, []any{byteArray(wkb), nil, extensions}}
}

func appendCoordinate(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, javaBits(v))
}

func pointValue(x, y float64) *Structure {
	wkb := []byte{1, 1, 0, 0, 0}
	wkb = appendCoordinate(appendCoordinate(wkb, x), y)
	return &Structure{pointSchema, []any{x, y, byteArray(wkb), nil}}
}

// numbers picks that many numbers out of a text like "<(0,0),1>"; -1: any number of pairs.
func numbers(b []byte, want int) ([]float64, error) {
	out := make([]float64, 0, max(want, 8))
	for i := 0; i < len(b); {
		j := i
		for j < len(b) && !bytes.ContainsRune([]byte("()<>[]{},"), rune(b[j])) {
			j++
		}
		if j > i {
			v, err := strconv.ParseFloat(string(b[i:j]), 64)
			if err != nil {
				return nil, fmt.Errorf("%q is no geometry: %w", b, err)
			}
			out = append(out, v)
		}
		i = j + 1
	}
	if want >= 0 && len(out) != want || want < 0 && (len(out) == 0 || len(out)%2 != 0) {
		return nil, fmt.Errorf("%q is no geometry of %d numbers", b, want)
	}
	return out, nil
}
