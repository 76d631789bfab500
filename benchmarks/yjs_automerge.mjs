// Applies the edits of a file to a document of Yjs and one of Automerge, and prints what they cost: for
// benchmarks/yjs_automerge.py. Arguments: the edits, as JSON. Printed: name -> [bytes saved, bytes sent, microseconds].
import { readFileSync } from "node:fs";
import * as Y from "yjs";
import * as A from "@automerge/automerge";

const { kind, edits } = JSON.parse(readFileSync(process.argv[2], "utf8"));

function inYjs() {
  const doc = new Y.Doc();
  const text = doc.getText("t");
  const map = doc.getMap("m");
  let sent = 0;
  doc.on("update", (update) => { sent += update.length; });
  for (const edit of edits) {
    doc.transact(() => {
      if (kind === "map") map.set(edit[0], edit[1]);
      else {
        if (edit[1]) text.delete(edit[0], edit[1]);
        if (edit[2]) text.insert(edit[0], edit[2]);
      }
    });
  }
  const value = kind === "map" ? map.toJSON() : text.toString();
  return [Y.encodeStateAsUpdate(doc).length, sent, value];
}

function inAutomerge() {
  let doc = A.from(kind === "map" ? { m: {} } : { t: "" });
  let sent = 0;
  for (const edit of edits) {
    doc = A.change(doc, (draft) => {
      if (kind === "map") draft.m[edit[0]] = edit[1];
      else A.splice(draft, ["t"], edit[0], edit[1], edit[2]);
    });
    sent += A.getLastLocalChange(doc).length;
  }
  return [A.save(doc).length, sent, kind === "map" ? { ...doc.m } : doc.t];
}

const results = {};
for (const [name, run] of [["Yjs", inYjs], ["Automerge", inAutomerge]]) {
  const began = process.cpuUsage();
  const [saved, sent, value] = run();
  const used = process.cpuUsage(began);
  results[name] = [saved, sent, (used.user + used.system) / edits.length, value];
}
console.log(JSON.stringify(results));
