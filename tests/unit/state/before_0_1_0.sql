-- A store as the last development version before mcpd 0.1.0 wrote it: SQLite's own dump.
BEGIN TRANSACTION;
CREATE TABLE counts
        (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL);
INSERT INTO "counts" VALUES('loads',3,100.0);
CREATE TABLE events (
        life TEXT NOT NULL, number BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, server TEXT NOT NULL,
        instance TEXT NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (life, number));
INSERT INTO "events" VALUES('a',1,90.0,'','','','daemon-started',X'7B7D');
CREATE TABLE given_names (
        kind TEXT NOT NULL, name TEXT NOT NULL, server TEXT NOT NULL, own TEXT NOT NULL, beside BIGINT NOT NULL,
        since DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (kind, name));
INSERT INTO "given_names" VALUES('tool','log','git','log',0,50.0,1,'mcpd-1');
CREATE TABLE hours (
        hour BIGINT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (hour, name));
INSERT INTO "hours" VALUES(1,'calls',2);
CREATE TABLE lists (
        server TEXT NOT NULL, kind TEXT NOT NULL, definitions BLOB NOT NULL, digest TEXT NOT NULL,
        version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, kind));
CREATE TABLE loaded_tools (
        session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, position BIGINT NOT NULL,
        loaded_schema_hash TEXT NOT NULL, loaded_epoch BIGINT NOT NULL, status TEXT NOT NULL,
        invalid_reason TEXT NOT NULL, renamed_to TEXT, source TEXT NOT NULL,
        loaded_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL,
        PRIMARY KEY (session, server, tool));
INSERT INTO "loaded_tools" VALUES('key','git','log',0,'hash of git/log',1,'valid','',NULL,'manual',7.0,0.0,1,'mcpd-1');
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO "schema_version" VALUES(9);
CREATE TABLE servers (
        name TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
        listed BIGINT NOT NULL, refreshed_at DOUBLE PRECISION NOT NULL, summary TEXT, keywords TEXT,
        summary_of TEXT, summary_generated_at DOUBLE PRECISION, version BIGINT NOT NULL, writer TEXT NOT NULL, about TEXT, introduction BLOB);
INSERT INTO "servers" VALUES('git','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',4,1,100.0,'keeps files','["git","été","\"quoted\""]','x',50.0,1,'mcpd-1','Keeps files, it says.',NULL);
CREATE TABLE sessions (
        key TEXT NOT NULL PRIMARY KEY, client TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        seen_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL);
INSERT INTO "sessions" VALUES('key','tester',5.0,10.0,1,'mcpd-1');
CREATE TABLE switches (
        server TEXT NOT NULL, tool TEXT NOT NULL, switched_off BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
        version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, tool));
INSERT INTO "switches" VALUES('git','push',1,100.0,1,'mcpd-1');
CREATE TABLE tools (
        server TEXT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, raw BLOB NOT NULL,
        schema_hash TEXT NOT NULL, epoch BIGINT NOT NULL, summary TEXT, keywords TEXT,
        summary_generated_at DOUBLE PRECISION, updated_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL, since DOUBLE PRECISION NOT NULL DEFAULT 0,
        PRIMARY KEY (server, name));
INSERT INTO "tools" VALUES('git','log',0,X'7B226E616D65223A226C6F67222C22696E707574536368656D61223A7B2274797065223A226F626A656374227D7D','ec004d42583d3f4932bb7314fabc7b8456fcd13b23f9262bcadd4ee49434732b',4,'does log','["git","été","\"quoted\""]',50.0,100.0,1,'mcpd-1',90.0);
INSERT INTO "tools" VALUES('git','push',1,X'7B226E616D65223A2270757368222C22696E707574536368656D61223A7B2274797065223A226F626A656374227D7D','40594b23562ee8d224bd883900789c57a07547f4218dc1ad19fcb3167e375b40',4,'does push','["git","été","\"quoted\""]',50.0,100.0,1,'mcpd-1',90.0);
CREATE TABLE version (value BIGINT NOT NULL);
INSERT INTO "version" VALUES(1);
CREATE INDEX tools_by_hash ON tools (schema_hash);
CREATE INDEX sessions_by_use ON sessions (seen_at);
CREATE INDEX loaded_tools_by_verdict ON loaded_tools
        (server, loaded_schema_hash, tool, status, invalid_reason, renamed_to);
CREATE INDEX events_by_server ON events (server, at);
CREATE INDEX events_by_time ON events (at);
COMMIT;
