/* The round barrier of a synchronous agent: plan, tokens, shares, parts.

   Learner 0 writes plans (a variable on ps 0, the truth) and leaves tokens, copies of
   a plan, that may be lost, come twice or come late. Actors send their share of a
   round to its memory, memories a part to the learner. Tasks are killed, declared lost
   while they live, started again; an actor may come late or never. A put is atomic
   (delivery.pml has the rest). `shutdown_secs` is used in one case only: when the
   learner is gone while the run stops, so that nobody writes the last plan.

   Properties: assertions here; no invalid end state; no cycle at all (-DNP without
   any progress label), so that every execution ends, without any fairness. */

#include "sizes.inc"

#ifndef ROUNDS
#define ROUNDS 2  /* numbers of rounds that are planned, at most; then comes the last */
#endif

#define TASKS (ACTORS + MEMORIES + 1)
#define MEMORY(m) (ACTORS + (m))
#define LEARNER (ACTORS + MEMORIES)
#define HOST(a) ((a) % MEMORIES)

byte up[TASKS], heard[TASKS], state[TASKS];
bit stopping;
byte crashes, pauses, voided;

/* Plans by number, 1, 2, …; `plan` is what the variable holds, 0: none. */
byte plan, last_plan;
byte member[(ROUNDS + 2) * ACTORS];  /* incarnation, 0: no member */
byte token[TASKS];                   /* a copy of a plan on its way, 0: none */
#define MEMBER(r, a) member[(r) * ACTORS + (a)]

/* Message: actor, incarnation, round, END? */
chan shares[MEMORIES] = [1] of { byte, byte, byte, bit };
/* Message: memory, incarnation, round, whose shares as bits, END? */
chan parts = [1] of { byte, byte, byte, byte, bit };
byte trained[ROUNDS + 2];            /* whose shares, as bits */
byte collected[(ROUNDS + 2) * ACTORS];  /* incarnation that made the share */

#define NEVER 255  /* incarnation of who has left */
#define ALIVE(t) (up[t] == inc)
#define FENCED(t) (heard[t] != inc || state[t] != JOINED)
#define AWAY(t) (!up[t] || up[t] != heard[t] || state[t] != JOINED)
#ifdef FAULT_WAIT_FOR_LOST
#define PEER_GONE(t) (state[t] == DONE)
#else
#define PEER_GONE(t) (state[t] == DONE || stopping && state[t] != JOINED)
#endif
/* An actor's connection may still be to an earlier life of the memory: a plan names the
   incarnation that it is for, and the sender connects anew before it puts the share. */
#ifdef FAULT_STALE_CONNECTION
#define CONNECTED(m) (!to || to == up[m])
#else
#define CONNECTED(m) true
#endif
#define NO_LAST_PLAN (stopping && state[LEARNER] != JOINED)
#define MAY_START (inc < LIVES && !stopping)
#define DIES(t) atomic { !ALIVE(t) || FENCED(t) -> goto death }

inline forget(t) {
    d_step {
        if
        :: t == LEARNER ->
            do
            :: nempty(parts) -> parts?_, _, _, _, _
            :: empty(parts) -> break
            od
        :: t >= ACTORS && t < LEARNER ->
            do
            :: nempty(shares[t - ACTORS]) -> shares[t - ACTORS]?_, _, _, _
            :: empty(shares[t - ACTORS]) -> break
            od
        :: else
        fi;
        up[t] = 0
    }
}

inline starts(t) {
    inc++; up[t] = inc; heard[t] = inc; state[t] = JOINED
}

inline stays_away(t) {
    if
    :: stopping && state[t] != JOINED -> state[t] = REFUSED
    :: else
    fi
}

proctype actor(byte a) {
    byte inc, seen, now;
#ifdef FAULT_STALE_CONNECTION
    byte to;  /* the memory's incarnation, 0: not connected */
#endif

birth:
    if
    :: atomic { MAY_START -> starts(a) }
    :: atomic { inc == LIVES || stopping -> stays_away(a); goto gone }
    fi;
follow:
    do
    :: DIES(a)
    :: atomic { ALIVE(a) && plan > seen -> now = plan; break }
    :: atomic { ALIVE(a) && token[a] > seen -> now = token[a]; token[a] = 0; break }
    :: atomic { ALIVE(a) && NO_LAST_PLAN -> goto flush }
    od;
    atomic {
        seen = now; now = 0;
        if
        :: seen == last_plan -> goto flush
        :: seen != last_plan && MEMBER(seen, a) != inc -> goto follow
        :: else -> skip
        fi
    }
    if  /* the share, to the memory that owns it */
    :: DIES(a)
    :: atomic { ALIVE(a) && up[MEMORY(HOST(a))] && CONNECTED(MEMORY(HOST(a))) &&
                nfull(shares[HOST(a)]) ->
                collected[seen * ACTORS + a] = inc;
                shares[HOST(a)]!a, inc, seen, 0
#ifdef FAULT_STALE_CONNECTION
                ; to = up[MEMORY(HOST(a))] }
    :: atomic { ALIVE(a) && up[MEMORY(HOST(a))] && !CONNECTED(MEMORY(HOST(a))) ->
                to = 0  /* the share is lost with the connection */
#endif
              }
    :: atomic { ALIVE(a) && PEER_GONE(MEMORY(HOST(a))) -> skip }
    fi;
    goto follow;
flush:
    if  /* END; the other memories have nothing of this actor */
    :: DIES(a)
    :: atomic { ALIVE(a) && up[MEMORY(HOST(a))] && nfull(shares[HOST(a)]) ->
                shares[HOST(a)]!a, inc, 0, 1 }
    :: atomic { ALIVE(a) && PEER_GONE(MEMORY(HOST(a))) -> skip }
    fi;
    atomic {
        if
        :: !ALIVE(a) || FENCED(a) -> goto death
        :: else -> state[a] = DONE; up[a] = 0; inc = NEVER; goto death
        fi
    }
death:
    atomic {
        if :: ALIVE(a) -> up[a] = 0 :: else fi;
        seen = 0; now = 0;
        if :: inc == NEVER -> skip :: else -> goto birth fi
    }
gone:
    inc = 0
}

#define A_ENDED(a) (HOST(a) != m || state[a] != JOINED || ended[a] == heard[a])
#define A_SILENT(a) (HOST(a) != m || AWAY(a) || ended[a] == up[a])
#define A_HERE(a) (!(missing & (1 << (a))))
/* A member of which nothing can come any more; it is gone, or was replaced. */
#ifdef FAULT_BARRIER_WAITS
#define A_CANNOT(a) false
#else
#define A_CANNOT(a) \
    (missing & (1 << (a)) && \
     (heard[a] != MEMBER(now, a) || state[a] != JOINED && empty(shares[m])))
#endif
#define DROPS(a) \
    :: atomic { ALIVE(t) && now && A_CANNOT(a) -> missing = missing & ~(1 << (a)) }
#define TAKES_SHARE \
    atomic { ALIVE(t) && nempty(shares[m]) -> \
             shares[m]?from, from_inc, tag, end; \
             if \
             :: end -> ended[from] = from_inc \
             :: !end && tag > now && !saw_last -> early[from] = tag; early_inc[from] = from_inc \
             :: else -> take_in(from, from_inc, tag) \
             fi; \
             from = 0; from_inc = 0; tag = 0; end = 0 }

#ifdef FAULT_OLD_SHARES
#define IS_AWAITED(who, who_inc, number) (now && missing & (1 << who))
#else
#define IS_AWAITED(who, who_inc, number) \
    (number == now && missing & (1 << who) && who_inc == MEMBER(number, who))
#endif

inline take_in(who, who_inc, number) {  /* else its rows are stale */
    if
    :: IS_AWAITED(who, who_inc, number) ->
        missing = missing & ~(1 << who); have = have | (1 << who)
    :: else
    fi
}

inline begin(new) {
    d_step {
        if
        :: new == last_plan -> saw_last = 1
        :: else ->
            now = new; missing = 0; have = 0; from = 0; sent = 0;
            do
            :: from < ACTORS ->
                if
                :: HOST(from) == m && MEMBER(new, from) ->
                    missing = missing | (1 << from)
                :: else
                fi;
                from++
            :: else -> break
            od;
            sent = (missing == 0)
        fi;
        from = 0;
        do
        :: from < ACTORS ->
            if
            :: early[from] -> take_in(from, early_inc[from], early[from])
            :: else
            fi;
            early[from] = 0; early_inc[from] = 0; from++
        :: else -> break
        od;
        from = 0;
        seen = new
    }
}

proctype memory(byte m) {
    byte inc, t, seen, now, missing, have, from, from_inc, tag;
    byte ended[ACTORS], early[ACTORS], early_inc[ACTORS];
    bit end, saw_last, sent;

    atomic { t = MEMORY(m); sent = 1 }
birth:
    if
    :: atomic { MAY_START -> starts(t) }
    :: atomic { inc == LIVES || stopping -> stays_away(t); goto gone }
    fi;
    do
    :: DIES(t)
    :: atomic { ALIVE(t) && plan > seen -> begin(plan) }
    :: atomic { ALIVE(t) && token[t] > seen -> begin(token[t]); token[t] = 0 }
    :: TAKES_SHARE
    DROPS(0)
#if ACTORS > 1
    DROPS(1)
#endif
#if ACTORS > 2
    DROPS(2)
#endif
    :: atomic { ALIVE(t) && !sent && !missing && up[LEARNER] && nfull(parts) ->
                parts!m, inc, now, have, 0; sent = 1; have = 0 }
    :: atomic { ALIVE(t) && !sent && !missing && PEER_GONE(LEARNER) ->
                sent = 1; have = 0 }
    :: atomic { ALIVE(t) && (saw_last || NO_LAST_PLAN) -> saw_last = 1; break }
    od;
    do  /* drains the shares; the actors leave after the last plan, too */
    :: DIES(t)
    :: TAKES_SHARE
    :: atomic { ALIVE(t) && stopping && EACH_ACTOR(A_ENDED) && empty(shares[m]) ->
                assert(EACH_ACTOR(A_SILENT)); break }
    od;
    if
    :: DIES(t)
    :: atomic { ALIVE(t) && up[LEARNER] && nfull(parts) -> parts!m, inc, 0, 0, 1 }
    :: atomic { ALIVE(t) && PEER_GONE(LEARNER) -> skip }
    fi;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else -> state[t] = DONE; up[t] = 0; inc = NEVER; goto death
        fi
    }
death:
    atomic {
        if :: ALIVE(t) -> forget(t) :: else fi;
        seen = 0; now = 0; missing = 0; have = 0; from = 0; from_inc = 0; tag = 0;
        end = 0; saw_last = 0; sent = 1;
        do
        :: from < ACTORS ->
            ended[from] = 0; early[from] = 0; early_inc[from] = 0; from++
        :: else -> break
        od;
        from = 0;
        if :: inc == NEVER -> skip :: else -> goto birth fi
    }
gone:
    atomic { inc = 0; sent = 0 }
}

#define M_ENDED(m) \
    (state[MEMORY(m)] != JOINED || ended[m] == heard[MEMORY(m)])
#define M_SILENT(m) (AWAY(MEMORY(m)) || ended[m] == up[MEMORY(m)])
#define M_HERE(m) (state[MEMORY(m)] == JOINED)
#define M_OUT(m) (state[MEMORY(m)] != JOINED)
#define A_OUT(a) (state[a] != JOINED)
#define SOME_ACTOR (!EACH_ACTOR(A_OUT))
#define HAS_PART(m) (!host[m] || parts_here & (1 << (m)))
#define HOST_GONE(m) \
    (host[m] && !(parts_here & (1 << (m))) && \
     (heard[MEMORY(m)] != host[m] || state[MEMORY(m)] != JOINED))
#if MEMORIES > 1
#define A_HOST_IS_GONE (HOST_GONE(0) || HOST_GONE(1))
#else
#define A_HOST_IS_GONE HOST_GONE(0)
#endif
#ifdef FAULT_PLANS_ON_LOST
#define MAY_PLAN SOME_ACTOR
#else
#define MAY_PLAN (SOME_ACTOR && EACH_MEMORY(M_HERE))
#endif

/* `heartbeat.check`, before every publication. */
#ifdef FAULT_FENCED_PLANS
#define FENCED_AND_KNOWS_IT false
#else
#define FENCED_AND_KNOWS_IT FENCED(t)
#endif

inline put_up(is_last) {  /* a new number, above all that were planned */
    d_step {
        assert(!FENCED(t));
        round = plan + 1; from = 0; parts_here = 0; shares_here = 0;
        do
        :: from < ACTORS ->
            if
            :: !is_last && state[from] == JOINED ->
                MEMBER(round, from) = heard[from]; host[HOST(from)] = 1
            :: else
            fi;
            if
            :: state[from] == JOINED -> token[from] = round
            :: else
            fi;
            from++
        :: else -> break
        od;
        from = 0;
        do
        :: from < MEMORIES ->
            if
            :: host[from] -> host[from] = heard[MEMORY(from)]
            :: else
            fi;
            if
            :: state[MEMORY(from)] == JOINED -> token[MEMORY(from)] = round
            :: else
            fi;
            from++
        :: else -> break
        od;
        from = 0;
        plan = round;
        if :: is_last -> last_plan = round :: else fi
    }
}

inline abandon() {
    d_step {
        round = 0; parts_here = 0; shares_here = 0; from = 0;
        do
        :: from < MEMORIES -> host[from] = 0; from++
        :: else -> break
        od;
        from = 0
    }
}

inline check_round() {
    d_step {
        from = 0;
        do
        :: from < ACTORS ->
            if
            :: shares_here & (1 << from) ->  /* of exactly this round's members */
                assert(MEMBER(round, from) &&
                       MEMBER(round, from) == collected[round * ACTORS + from])
            :: else
            fi;
            from++
        :: else -> break
        od;
        from = 0;
        assert(!trained[round]);  /* no round counts twice */
        trained[round] = 1
    }
}

#define TAKES_PART \
    atomic { ALIVE(t) && nempty(parts) -> \
             parts?from, from_inc, tag, have, end; \
             if \
             :: end -> ended[from] = from_inc \
             :: !end && round && tag == round && host[from] == from_inc && \
                !(parts_here & (1 << from)) -> \
                 parts_here = parts_here | (1 << from); \
                 assert(!(shares_here & have)); \
                 shares_here = shares_here | have \
             :: else  /* stale */ \
             fi; \
             from = 0; from_inc = 0; tag = 0; have = 0; end = 0 }
#ifdef FAULT_NO_VOID
#define VOIDS atomic { false -> skip }
#else
#define VOIDS \
    atomic { ALIVE(t) && round && A_HOST_IS_GONE -> \
             voided++; assert(voided <= crashes + pauses); abandon() }
#endif
#define TRAINS \
    atomic { ALIVE(t) && !FENCED(t) && round && EACH_MEMORY(HAS_PART) -> \
             check_round(); abandon() }

proctype learner() {
    byte inc, t = LEARNER, round, parts_here, shares_here, from, from_inc, tag, have;
    byte host[MEMORIES], ended[MEMORIES];
    bit end;

birth:
    if
    :: atomic { MAY_START -> starts(t) }
    :: atomic { inc == LIVES || stopping -> stays_away(t); goto gone }
    fi;
    do
    :: DIES(t)
    :: TAKES_PART
    :: VOIDS
    :: TRAINS
    :: atomic { ALIVE(t) && !FENCED_AND_KNOWS_IT && !round && plan < ROUNDS && !stopping &&
                MAY_PLAN -> put_up(0) }
    :: atomic { ALIVE(t) && stopping && !round -> break }
    od;
    atomic {
        if
        :: !ALIVE(t) || FENCED_AND_KNOWS_IT -> goto death
        :: else -> put_up(1); round = 0
        fi
    }
    do
    :: DIES(t)
    :: TAKES_PART
    :: atomic { ALIVE(t) && EACH_MEMORY(M_ENDED) && empty(parts) ->
                assert(EACH_MEMORY(M_SILENT)); break }
    od;
    if
    :: DIES(t)
    :: atomic { ALIVE(t) && EACH_ACTOR(A_OUT) && EACH_MEMORY(M_OUT) -> skip }
    fi;
    atomic {
        if
        :: !ALIVE(t) || FENCED(t) -> goto death
        :: else -> state[t] = DONE; up[t] = 0; inc = NEVER; goto death
        fi
    }
death:
    atomic {
        if :: ALIVE(t) -> forget(t) :: else fi;
        abandon(); from_inc = 0; tag = 0; have = 0; end = 0;
        do
        :: from < MEMORIES -> ended[from] = 0; from++
        :: else -> break
        od;
        from = 0;
        if :: inc == NEVER -> skip :: else -> goto birth fi
    }
gone:
    inc = 0
}

/* Kills a task, misses its beats, or believes to; loses and repeats tokens. */
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
        run fate(); run learner()
    }
    stopping = 1;
    atomic {
        EACH_ACTOR(A_OUT) && EACH_MEMORY(M_OUT) && state[LEARNER] != JOINED ->
            t = 0;
            do
            :: t < TASKS -> assert(AWAY(t)); t++
            :: else -> break
            od
    }
}
