/* The farewell: in which order tasks end, whoever dies, comes back or comes late.

   The circle of channels: actors -> memories -> learner -> memories (priorities), each
   queue of capacity 1, a put atomic (delivery.pml has the rest). Tasks are killed,
   declared lost while they live, started again; the last actor comes when it likes, or
   not at all; actors may be asked to leave. No deadline of `shutdown_secs` is used:
   the farewell has to work without.

   Properties: assertions here; no invalid end state; no cycle at all (-DNP without
   any progress label), so that every execution ends, without any fairness. */

#include "sizes.inc"

#ifndef ITEMS
#define ITEMS 1    /* that an incarnation of an actor sends at most */
#endif
#ifndef BATCHES
#define BATCHES 1  /* that an incarnation of a memory sends at most */
#endif

#define TASKS (ACTORS + MEMORIES + 1)
#define MEMORY(m) (ACTORS + (m))
#define LEARNER (ACTORS + MEMORIES)

byte up[TASKS];      /* incarnation that lives, 0: none */
byte heard[TASKS];   /* newest incarnation that ps 0 knows */
byte state[TASKS];
bit stopping, finished, ps_left, ps0_left;
byte crashes, pauses;

/* A queue goes with its owner's process. Message: sender, incarnation, END? */
chan experience[MEMORIES] = [1] of { byte, byte, bit };
chan priorities[MEMORIES] = [1] of { byte, bit };
chan batches = [1] of { byte, byte, bit };
bit experience_closed[MEMORIES], priorities_closed[MEMORIES], batches_closed;

#define NEVER 255  /* incarnation of who has left */
#define ALIVE(t) (up[t] == inc)
#define FENCED(t) (heard[t] != inc || state[t] != JOINED)
#ifdef FAULT_WAIT_FOR_LOST
#define PEER_GONE(t) (state[t] == DONE)
#else
#define PEER_GONE(t) (state[t] == DONE || stopping && state[t] != JOINED)
#endif
/* ps 0 has given it up, or it is not there: nobody waits for it any more. */
#define AWAY(t) (!up[t] || up[t] != heard[t] || state[t] != JOINED)

inline forget(t) {  /* what dies with a process: its queues */
    d_step {
        if
        :: t == LEARNER ->
            do
            :: nempty(batches) -> batches?_, _, _
            :: empty(batches) -> break
            od;
            batches_closed = 0
        :: t >= ACTORS && t < LEARNER ->
            do
            :: nempty(experience[t - ACTORS]) -> experience[t - ACTORS]?_, _, _
            :: empty(experience[t - ACTORS]) -> break
            od;
            do
            :: nempty(priorities[t - ACTORS]) -> priorities[t - ACTORS]?_, _
            :: empty(priorities[t - ACTORS]) -> break
            od;
            experience_closed[t - ACTORS] = 0; priorities_closed[t - ACTORS] = 0
        :: else
        fi;
        up[t] = 0
    }
}

/* The launcher starts a task (again); ps 0 refuses it when the run is ending. */
#define MAY_START (inc < LIVES && !stopping)
inline starts(t) {
    inc++; up[t] = inc; heard[t] = inc; state[t] = JOINED
}
inline stays_away(t) {
    if
    :: stopping && state[t] != JOINED -> state[t] = REFUSED
    :: else  /* never comes, or died: ps 0 will miss its beats */
    fi
}

proctype actor(byte a) {
    byte inc, items, m;

birth:
    if
    :: atomic { MAY_START -> starts(a); items = ITEMS; m = 0; goto act }
    :: atomic { inc == LIVES || stopping -> stays_away(a); goto gone }
    fi;
act:
    if
    :: atomic { !ALIVE(a) || FENCED(a) -> goto death }
    :: atomic { ALIVE(a) && items && !stopping -> items--; m = 0 }
    :: atomic { ALIVE(a) && items && !stopping && MEMORIES > 1 ->
                items--; m = MEMORIES - 1 }
    :: atomic { ALIVE(a) -> m = 0; goto flush }  /* stopping, or asked to leave */
    fi;
    if
    :: atomic { !ALIVE(a) || FENCED(a) -> goto death }
    :: atomic {
        ALIVE(a) && up[MEMORY(m)] && !experience_closed[m] && nfull(experience[m]) ->
            experience[m]!a, inc, 0
    }
    :: atomic { ALIVE(a) && up[MEMORY(m)] && experience_closed[m] -> skip }
    :: atomic { ALIVE(a) && PEER_GONE(MEMORY(m)) -> skip }
    fi;
    goto act;
flush:
    if
    :: atomic { !ALIVE(a) || FENCED(a) -> goto death }
    :: atomic {
        ALIVE(a) && up[MEMORY(m)] && !experience_closed[m] && nfull(experience[m]) ->
            experience[m]!a, inc, 1; m++
    }
    :: atomic { ALIVE(a) && up[MEMORY(m)] && experience_closed[m] -> m++ }
    :: atomic { ALIVE(a) && PEER_GONE(MEMORY(m)) -> m++ }
    fi;
    if
    :: m < MEMORIES -> goto flush
    :: else
    fi;
    atomic {
        if
        :: !ALIVE(a) || FENCED(a) -> goto death
        :: else -> state[a] = DONE; up[a] = 0; goto gone
        fi
    }
death:
    atomic { if :: ALIVE(a) -> up[a] = 0 :: else fi; goto birth }
gone:
    atomic { inc = 0; items = 0; m = 0 }
}

/* Everybody who could still send has ended, or is given up. */
#define A_ENDED(a) (state[a] != JOINED || ended[a] == heard[a])
#define M_ENDED(m) \
    (state[MEMORY(m)] != JOINED || m_ended[m] == heard[MEMORY(m)])
#define A_SILENT(a) (AWAY(a) || ended[a] == up[a])
#define M_SILENT(m) (AWAY(MEMORY(m)) || m_ended[m] == up[MEMORY(m)])
#ifdef FAULT_CLOSE_EARLY
#define EXPERIENCE_ENDED stopping
#else
#define EXPERIENCE_ENDED (stopping && EACH_ACTOR(A_ENDED))
#endif

/* What a memory does all along; FAULT: it waits for its batches to be taken first. */
#define TAKES_PRIORITY \
    atomic { ALIVE(t) && nempty(priorities[m]) -> \
             priorities[m]?from, end; if :: end -> l_ended = from :: else fi; end = 0; from = 0 }
#ifdef FAULT_DEAF_WHILE_SENDING
#define MEANWHILE atomic { false -> skip }
#else
#define MEANWHILE TAKES_PRIORITY
#endif
#define SENDS_BATCH \
    atomic { ALIVE(t) && out && up[LEARNER] && !batches_closed && nfull(batches) -> \
             batches!m, inc, 0; out = 0 } \
    :: atomic { ALIVE(t) && out && (PEER_GONE(LEARNER) || up[LEARNER] && batches_closed) -> \
             out = 0 }
#define DIES atomic { !ALIVE(t) || FENCED(t) -> goto death }

proctype memory(byte m) {
    byte inc, t, from, inc_seen, stock, made, l_ended;
    byte ended[ACTORS];
    bit end, out;

    t = MEMORY(m);
birth:
    if
    :: atomic { MAY_START -> starts(t); goto serve }
    :: atomic { inc == LIVES || stopping -> stays_away(t); goto gone }
    fi;
serve:
    do
    :: DIES
    :: TAKES_PRIORITY
    :: SENDS_BATCH
    :: atomic { ALIVE(t) && stock && !out && made < BATCHES && !stopping ->
                made++; out = 1 }
    :: atomic { ALIVE(t) && nempty(experience[m]) ->
                experience[m]?from, inc_seen, end;
                if :: end -> ended[from] = inc_seen :: else -> stock = 1 fi;
                from = 0; inc_seen = 0; end = 0 }
    :: atomic { ALIVE(t) && EXPERIENCE_ENDED -> break }
    od;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else ->
            assert(EACH_ACTOR(A_SILENT));
            experience_closed[m] = 1
        fi
    }
    do
    :: DIES
    :: atomic { ALIVE(t) && nempty(experience[m]) -> experience[m]?_, _, _; stock = 1 }
    :: atomic { ALIVE(t) && empty(experience[m]) -> break }
    od;
    do  /* `end_senders` */
    :: DIES
    :: MEANWHILE
    :: SENDS_BATCH
    :: atomic {
        ALIVE(t) && !out && up[LEARNER] && !batches_closed && nfull(batches) ->
            batches!m, inc, 1; break
    }
    :: atomic { ALIVE(t) && !out && (PEER_GONE(LEARNER) || up[LEARNER] && batches_closed) -> break }
    od;
    do  /* the learner's END, or its loss */
    :: DIES
    :: TAKES_PRIORITY
    :: atomic {
        ALIVE(t) && (state[LEARNER] != JOINED || l_ended == heard[LEARNER]) -> break
    }
    od;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else ->
            assert(AWAY(LEARNER) || l_ended == up[LEARNER]);
            state[t] = DONE; up[t] = 0; inc = NEVER; goto death
        fi
    }
death:
    atomic {
        if :: ALIVE(t) -> forget(t) :: else fi;
        from = 0; inc_seen = 0; stock = 0; made = 0; l_ended = 0; end = 0; out = 0;
        do
        :: from < ACTORS -> ended[from] = 0; from++
        :: else -> break
        od;
        from = 0;
        if :: inc == NEVER -> skip :: else -> goto birth fi
    }
gone:
    inc = 0
}

#define PEERS_GONE(t) (EACH_ACTOR(A_GONE) && EACH_MEMORY(M_GONE))
#define A_GONE(a) (state[a] != JOINED)
#define M_GONE(m) (state[MEMORY(m)] != JOINED)

proctype learner() {
    byte inc, t = LEARNER, from, inc_seen, m;
    byte m_ended[MEMORIES];
    bit end;

birth:
    if
    :: atomic { MAY_START -> starts(t); goto train }
    :: atomic { inc == LIVES || stopping -> stays_away(t); goto gone }
    fi;
train:
    do
    :: DIES
    :: atomic { ALIVE(t) && nempty(batches) ->
                batches?from, inc_seen, end;
                if
                :: end -> m_ended[from] = inc_seen; from = 0; inc_seen = 0; end = 0
                :: else -> m = from; from = 0; inc_seen = 0; goto correct
                fi }
    :: atomic { ALIVE(t) && stopping && EACH_MEMORY(M_ENDED) -> m = 0; break }
    od;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else ->
            assert(EACH_MEMORY(M_SILENT));
            batches_closed = 1
        fi
    }
    do
    :: DIES
    :: atomic { ALIVE(t) && nempty(batches) -> batches?_, _, _ }
    :: atomic { ALIVE(t) && empty(batches) -> break }
    od;
finish:  /* END to every memory */
    if
    :: DIES
    :: atomic { ALIVE(t) && up[MEMORY(m)] && nfull(priorities[m]) ->
                priorities[m]!inc, 1; m++ }
    :: atomic { ALIVE(t) && PEER_GONE(MEMORY(m)) -> m++ }
    fi;
    if
    :: m < MEMORIES -> goto finish
    :: else
    fi;
    if
    :: DIES
    :: atomic { ALIVE(t) && PEERS_GONE(t) -> skip }
    fi;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else ->
            assert(PEERS_GONE(t));  /* the ledger that it writes is final */
            state[t] = DONE; up[t] = 0; inc = NEVER; goto death
        fi
    }
correct:  /* priorities go back to the memory of the batch; waits for room */
    if
    :: DIES
    :: atomic { ALIVE(t) && up[MEMORY(m)] && nfull(priorities[m]) ->
                priorities[m]!inc, 0; m = 0; goto train }
    :: atomic { ALIVE(t) && PEER_GONE(MEMORY(m)) -> m = 0; goto train }
    fi;
death:
    atomic {
        if :: ALIVE(t) -> forget(t) :: else fi;
        from = 0; inc_seen = 0; m = 0; end = 0;
        do
        :: from < MEMORIES -> m_ended[from] = 0; from++
        :: else -> break
        od;
        from = 0;
        if :: inc == NEVER -> skip :: else -> goto birth fi
    }
gone:
    inc = 0
}

/* Kills a task, misses its beats, or believes to. */
#define FATE(t) \
    :: atomic { crashes < CRASHES && up[t] -> crashes++; forget(t) } \
    :: atomic { state[t] == JOINED && !up[t] -> state[t] = LOST } \
    :: atomic { pauses < PAUSES && state[t] == JOINED && up[t] == heard[t] -> \
                pauses++; state[t] = LOST }

proctype fate() {
end:
    do
    FATE(0)
    FATE(1)
    FATE(2)
#if ACTORS + MEMORIES > 2
    FATE(3)
#endif
#if ACTORS + MEMORIES > 3
    FATE(4)
#endif
#if ACTORS + MEMORIES > 4
    FATE(5)
#endif
    od
}

proctype ps() {  /* ps 1: acknowledges the end, then leaves */
    finished;
    ps_left = 1
}

init {
    byte t;

    atomic {
        do
        :: t < ACTORS -> run actor(t); t++
        :: else -> break
        od;
        do
        :: t < LEARNER -> run memory(t - ACTORS); t++
        :: else -> break
        od;
        run fate(); run learner(); run ps()
    }
    stopping = 1;
    atomic { GONE(state[LEARNER]) && EACH_MEMORY(M_GONE) && EACH_ACTOR(A_GONE) ->
             finished = 1 }
    atomic {
        ps_left ->
            t = 0;
            do  /* ps 0 leaves last: whoever still lives is about to be fenced */
            :: t < TASKS -> assert(AWAY(t)); t++
            :: else -> break
            od;
            ps0_left = 1
    }
}
