import { DuckDBInstance } from '@duckdb/node-api';
const db = await DuckDBInstance.create(':memory:');
const c = await db.connect();
const parts = process.argv.at(-1).split(';').map(s => s.trim()).filter(s => s);
for (const s of parts.slice(0, -1)) await c.run(s);
const r = await c.runAndReadAll(parts.at(-1));
console.log(JSON.stringify(r.getRowObjectsJson()));
