-- A store as mcpd wrote it with schema 6, before prompts, resources and templates were kept: SQLite's own dump.
BEGIN TRANSACTION;
CREATE TABLE counts
        (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL);
INSERT INTO "counts" VALUES('loads',3,100.0);
CREATE TABLE loaded_tools (
        session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, position BIGINT NOT NULL,
        loaded_schema_hash TEXT NOT NULL, loaded_epoch BIGINT NOT NULL, status TEXT NOT NULL,
        invalid_reason TEXT NOT NULL, renamed_to TEXT, source TEXT NOT NULL,
        loaded_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL,
        PRIMARY KEY (session, server, tool));
INSERT INTO "loaded_tools" VALUES('/home/me/project','git','log',0,'hash of git/log',1,'valid','',NULL,'manual',7.0,0.0,1,'older');
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO "schema_version" VALUES(6);
CREATE TABLE servers (
        name TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
        listed BIGINT NOT NULL, refreshed_at DOUBLE PRECISION NOT NULL, summary TEXT, keywords TEXT,
        summary_of TEXT, summary_generated_at DOUBLE PRECISION, version BIGINT NOT NULL, writer TEXT NOT NULL, about TEXT);
INSERT INTO "servers" VALUES('git','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',4,1,100.0,'keeps files','["git","été","\"quoted\""]','x',50.0,1,'older','Keeps files, it says.');
INSERT INTO "servers" VALUES('hg','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',2,1,100.0,NULL,NULL,NULL,NULL,1,'older',NULL);
INSERT INTO "servers" VALUES('mute','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',1,0,100.0,NULL,NULL,NULL,NULL,1,'older',NULL);
CREATE TABLE sessions (
        key TEXT NOT NULL PRIMARY KEY, client TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        seen_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL);
INSERT INTO "sessions" VALUES('/home/me/project','tester',5.0,10.0,1,'older');
CREATE TABLE switches (
        server TEXT NOT NULL, tool TEXT NOT NULL, switched_off BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
        version BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (server, tool));
INSERT INTO "switches" VALUES('git','push',1,100.0,1,'older');
INSERT INTO "switches" VALUES('hg','',1,100.0,1,'older');
CREATE TABLE tool_names (
        name TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL, tool TEXT NOT NULL, beside BIGINT NOT NULL,
        since DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL);
INSERT INTO "tool_names" VALUES('log','git','log',0,50.0,1,'older');
INSERT INTO "tool_names" VALUES('push','git','push',0,50.0,1,'older');
INSERT INTO "tool_names" VALUES('hg__log','hg','log',0,60.0,1,'older');
INSERT INTO "tool_names" VALUES('git__push','git','push',1,70.0,1,'older');
CREATE TABLE tools (
        server TEXT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, raw BLOB NOT NULL,
        schema_hash TEXT NOT NULL, epoch BIGINT NOT NULL, summary TEXT, keywords TEXT,
        summary_generated_at DOUBLE PRECISION, updated_at DOUBLE PRECISION NOT NULL, version BIGINT NOT NULL, writer TEXT NOT NULL, since DOUBLE PRECISION NOT NULL DEFAULT 0,
        PRIMARY KEY (server, name));
INSERT INTO "tools" VALUES('git','log',0,X'7B226E616D65223A226C6F67222C22696E707574536368656D61223A7B2274797065223A226F626A656374227D7D','ec004d42583d3f4932bb7314fabc7b8456fcd13b23f9262bcadd4ee49434732b',4,'does log','["git","été","\"quoted\""]',50.0,100.0,1,'older',90.0);
INSERT INTO "tools" VALUES('git','push',1,X'7B226E616D65223A2270757368222C22696E707574536368656D61223A7B2274797065223A226F626A656374227D7D','40594b23562ee8d224bd883900789c57a07547f4218dc1ad19fcb3167e375b40',4,'does push','["git","été","\"quoted\""]',50.0,100.0,1,'older',90.0);
INSERT INTO "tools" VALUES('hg','log',0,X'7B226E616D65223A226C6F67222C22696E707574536368656D61223A7B2274797065223A226F626A656374227D7D','ec004d42583d3f4932bb7314fabc7b8456fcd13b23f9262bcadd4ee49434732b',2,NULL,NULL,NULL,100.0,1,'older',90.0);
CREATE TABLE version (value BIGINT NOT NULL);
INSERT INTO "version" VALUES(1);
CREATE INDEX tools_by_hash ON tools (schema_hash);
CREATE INDEX sessions_by_use ON sessions (seen_at);
CREATE INDEX loaded_tools_by_verdict ON loaded_tools
        (server, loaded_schema_hash, tool, status, invalid_reason, renamed_to);
COMMIT;
