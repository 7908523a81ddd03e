package fletchlog.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What a query reads of keys and values that are decoded, as JSON for Rust. */
final class Fields {
  private Fields() {}

  /** {@code {"value": {"fields": [["id"], ["customer", "name"]], "type": "struct<..>"}}}; keys and values that are bytes are in it, too, and do not matter. */
  static String asked(StructType schema) {
    List<String> columns = new ArrayList<>();
    for (String name : List.of("key", "value")) {
      String fields = null;
      String type = "";
      for (StructField field : schema.fields()) {
        String found = field.name().toLowerCase(Locale.ROOT);
        if (found.equals(name)) {
          List<String> paths = new ArrayList<>();
          add(paths, new ArrayList<>(), field.dataType());
          fields = String.join(",", paths);
          type = field.dataType().catalogString();
        } else if (found.equals(name + "_error") && fields == null) {
          fields = "";
        }
      }
      if (fields != null) {
        columns.add(quoted(name) + ":{\"fields\":[" + fields + "],\"type\":" + quoted(type) + "}");
      }
    }
    return "{" + String.join(",", columns) + "}";
  }

  /** The ways to all fields that have none themselves; items of lists and values of maps are at the way to the list or map. */
  private static void add(List<String> paths, List<String> inside, DataType type) {
    if (type instanceof ArrayType list) {
      add(paths, inside, list.elementType());
    } else if (type instanceof MapType map) {
      add(paths, inside, map.valueType());
    } else if (type instanceof StructType struct) {
      for (StructField field : struct.fields()) {
        List<String> way = new ArrayList<>(inside);
        way.add(quoted(field.name()));
        add(paths, way, field.dataType());
      }
    } else {
      paths.add("[" + String.join(",", inside) + "]");
    }
  }

  private static String quoted(String text) {
    StringBuilder made = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        made.append('\\').append(letter);
      } else if (letter < ' ') {
        made.append(String.format("\\u%04x", (int) letter));
      } else {
        made.append(letter);
      }
    }
    return made.append('"').toString();
  }
}
